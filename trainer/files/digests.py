"""What the files of a folder were when they were written: `digests.json` beside them, with the size and digest of each.

Written into checkpoints and exported models, and checked by whoever reads one. A folder of an earlier version has no such
file and is read as it is. It finds damage and edits by mistake; who can write the folder can seal it anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from rock_env.errors import InvalidArgument
from rock_env.foreign import budget
from rock_env.foreign.files import open_regular
from trainer.errors import CheckpointError

__all__ = [
    "FILE",
    "Digest",
    "Sealed",
    "check",
    "digest_of",
    "digest_of_text",
    "listed",
    "read",
    "seal",
    "sealing",
    "sync",
    "with_settings",
]

FILE = "digests.json"
_BLOCK_BYTES = 1 << 20
_SHOWN = 3
"""How many files a message names."""


class Digest(msgspec.Struct, frozen=True):
    """A file's content."""

    bytes: int
    blake2b: str


class Sealed(msgspec.Struct, frozen=True):
    """`digests.json`."""

    files: dict[str, Digest]
    """By path within the folder: all that it holds."""
    beside: dict[str, Digest] = {}
    """By path within the run: files that the folder's mean nothing without."""
    settings: str = ""
    """The run's `config.toml`, word for word; empty where there was none."""
    seal: str = ""
    """Digest of all above."""


def seal(folder: Path, *, beside: Mapping[str, Digest] | None = None, settings: str = "") -> None:
    """Write what the folder's files are now, and bring all of it to the disk. Raise `OSError`."""
    paths = _files(folder)
    with ThreadPoolExecutor(1) as apart:  # the disk writes while the digests are computed
        synced = apart.submit(_sync_all, paths.values())
        found = {name: _digest(path) for name, path in paths.items()}
        synced.result()
    (folder / FILE).write_bytes(_encoded(Sealed(found, dict(beside or {}), settings)))
    sync(folder / FILE)
    for inner in {path.parent for path in paths.values()} | {folder}:
        sync(inner)


def sealing(fill: Callable[[Path], object]) -> Callable[[Path], None]:
    """Return what fills a folder as `fill` does and seals it."""

    def sealed(folder: Path) -> None:
        fill(folder)
        seal(folder)

    return sealed


def listed(root: Path, paths: list[Path]) -> dict[str, Digest]:
    """Return the digests of files below `root` by their path within it; those that are not there are left out."""
    return {path.relative_to(root).as_posix(): _digest(path) for path in paths if path.is_file()}


def check(folder: Path, *, run: Path | None = None, exact: bool = True) -> bool:
    """Check that the files are those that were sealed; return whether the folder has digests at all.

    `run` is the folder that the paths of `beside` begin at; None leaves them unchecked. Without `exact`, files that were
    added are none of its business. Raise `CheckpointError` naming the files that differ.
    """
    sealed = read(folder)
    if sealed is None:
        return False
    problems = list(_differences(folder, sealed.files))
    if exact:
        problems += [
            f"{folder / name}: expected no such file" for name in _files(folder).keys() - sealed.files.keys()
        ]
    if run is not None:
        problems += _differences(run, sealed.beside)
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise CheckpointError(
            f"{folder} is not as it was written. {'; '.join(problems[:_SHOWN])}{more}. Restore what differs from a copy."
        )
    return True


def read(folder: Path) -> Sealed | None:
    """Return the folder's digests, None where it has none. Raise `CheckpointError` where they are damaged themselves."""
    path = folder / FILE
    try:
        found = msgspec.json.decode(budget.read_json(path, str(path)), type=Sealed)
    except FileNotFoundError:
        return None
    except (OSError, InvalidArgument, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"cannot read {path}: {error}. Restore it from a copy.") from error
    if (got := _seal_of(found)) != found.seal:
        raise CheckpointError(
            f"{path} was changed: expected content of the digest {found.seal!r}, got {got!r}. Restore it from a copy."
        )
    return found


def with_settings(folder: Path, change: Callable[[str], str]) -> bytes:
    """Return the folder's digests with other settings, sealed again. The folder must have some."""
    found = read(folder)
    assert found is not None
    return _encoded(msgspec.structs.replace(found, settings=change(found.settings)))


def digest_of(path: Path) -> str:
    """Return the BLAKE2b digest (hexadecimal) of a file, or of a folder's files and their names."""
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file())
        names = [f"{digest_of(file)} {file.relative_to(path).as_posix()}\n" for file in files]
        return digest_of_text("".join(names))
    state = hashlib.blake2b(digest_size=16)
    with open_regular(path) as file:
        while block := file.read(_BLOCK_BYTES):
            state.update(block)
    return state.hexdigest()


def digest_of_text(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def sync(path: Path) -> None:
    """Bring a file or folder to the disk. Raise `OSError`."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_all(paths: Iterable[Path]) -> None:
    for path in paths:
        sync(path)


def _differences(root: Path, expected: Mapping[str, Digest]) -> Iterator[str]:
    for name, wanted in expected.items():
        path = root / name
        try:
            size = path.stat().st_size
            got = Digest(size, digest_of(path) if size == wanted.bytes else "")
        except OSError as error:
            yield f"{path}: {error.strerror}"
            continue
        if size != wanted.bytes:
            yield f"{path}: expected {wanted.bytes} bytes, got {size}"
        elif got != wanted:
            yield f"{path}: expected the digest {wanted.blake2b}, got {got.blake2b}"


def _files(folder: Path) -> dict[str, Path]:
    """Return all files by their path within the folder, but hidden ones, which nothing reads."""
    found = {
        path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()
    }
    return {name: path for name, path in found.items() if name != FILE and not path.name.startswith(".")}


def _digest(path: Path) -> Digest:
    return Digest(path.stat().st_size, digest_of(path))


def _encoded(sealed: Sealed) -> bytes:
    whole = msgspec.structs.replace(sealed, seal=_seal_of(sealed))
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"


def _seal_of(sealed: Sealed) -> str:
    return digest_of_text(msgspec.json.encode(msgspec.structs.replace(sealed, seal="")).decode())
