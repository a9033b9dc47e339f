"""`ale replay pack` and `ale replay unpack`: a run, or one step of it, as one file for whoever is to look into it.

A pack holds settings, versions, metrics and rollouts, without what has the form of a secret
(`ale.replay.interchange.redaction`). With a step it holds what `ale replay train` needs to compute that step's update, its
rollouts unchanged: where they hold a secret it is refused.
"""

from __future__ import annotations

import gzip
import io
import json
import platform
import secrets
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from agent_runtime.errors import CorruptTrajectory, StoreError
from agent_runtime.store import (
    FOLDER,
    SUFFIX,
    TrajectoryReader,
    kept_segment,
    trajectory_files,
    write_segment,
)
from ale.errors import RecordError
from ale.replay.interchange.redaction import redacted, redacted_rollout
from ale.replay.places import raise_damaged
from ale.terminal import stdout
from ale.training import runs
from rock_env.errors import InvalidArgument
from rock_env.foreign.archive import Rewinding, TarMember, entry_path, members
from rock_env.foreign.files import open_regular
from rock_env.foreign.folder import read_inside
from trainer import checkpoint
from trainer.files import digests
from trainer.rollout.experts import HELD_OUT
from trainer.scheduler.journal import JOURNAL

__all__ = ["pack_command", "unpack_command"]

ASKS_ABOVE = 100_000_000
"""Bytes of a pack before compression from which somebody has to agree."""
_TEXTS = (
    "config.toml",
    "own.json",
    "lineage.json",
    "metrics.jsonl",
    "summary.json",
    "stopping.json",
    JOURNAL,
)
_MOST_FILES = 100_000
_MOST_BYTES = 64 << 30
_MOST_PARTS = 8
_GZIP = b"\x1f\x8b"
_ABOUT = "PACKED.json"


def pack_command(run: str, out: Path, *, step: int | None, yes: bool) -> None:
    """Write the pack. Raise `RecordError` for one that is too large without `--yes`, or holds a secret with a step.

    Damaged records are left out, and told as an error when the pack is written; with a step nothing is written then.
    """
    folder = runs.locate(run)
    if not (folder / runs.CONFIG).is_file():
        raise RecordError(f"no run in {folder}: it holds no {runs.CONFIG}.{runs.others(folder.name)}")
    if out.exists():
        raise RecordError(f"{out} is there already: expected a new file. Choose another --out.")
    files = list(_whole(folder) if step is None else _of_step(folder, step))
    size = sum(path.stat().st_size for path in files)
    if size > ASKS_ABOVE and not yes:
        raise RecordError(
            f"the pack would hold {size / 1e6:.0f} MB before compression, more than {ASKS_ABOVE / 1e6:.0f}. Give --yes to "
            "write it all the same, or --step N for one step alone."
        )
    changed, damaged = _write(folder, files, out, exact=step is not None)
    said = stdout()
    said.print(f"{len(files)} files of {folder} in {out}, {out.stat().st_size / 1e6:.1f} MB")
    if changed:
        said.print(f"{changed} rollouts held what looks like a secret: it and their token ids were taken out")
    if step is None:
        said.print("`ale replay train` needs a checkpoint as well: pack with --step N for that")
    raise_damaged(damaged)


def _whole(folder: Path) -> Iterator[Path]:
    """Yield what tells of a whole run; models and checkpoints stay behind."""
    yield from (path for name in _TEXTS if (path := folder / name).is_file())
    yield from trajectory_files(folder / FOLDER)


def _of_step(folder: Path, step: int) -> Iterator[Path]:
    """Yield what computes a step again: the checkpoint before it, all records from there, its own checkpoint if kept."""
    base, number = checkpoint.before_step(folder / "checkpoints", step)
    after = checkpoint.place(folder / "checkpoints", step)
    for place in (base, after):
        if place.is_dir():
            checkpoint.check(place)
    yield from (path for name in _TEXTS if (path := folder / name).is_file())
    wanted = [kept_segment(folder, kind) for kind in ("expert", HELD_OUT)]
    for each in range(number + 1, step + 1):
        wanted += [kept_segment(folder, kind, each) for kind in ("step", "set_aside")]
    yield from (path for path in wanted if path.is_file())
    for place in (base, after):
        yield from sorted(path for path in place.glob("*") if path.is_file())


def _write(folder: Path, files: Iterable[Path], out: Path, *, exact: bool) -> tuple[int, list[StoreError]]:
    """Write the archive beside its place and move it there; return how many rollouts were changed, and what was damaged."""
    out.parent.mkdir(parents=True, exist_ok=True)
    changed = 0
    damaged: list[StoreError] = []
    beside = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
    try:
        with tarfile.open(beside, "x:gz") as archive, tempfile.TemporaryDirectory() as scratch:
            for path in files:
                name = path.relative_to(folder).as_posix()
                if path.parent.name == FOLDER:
                    clean, count = _rollouts(path, Path(scratch), damaged, exact=exact)
                    changed += count
                    archive.add(clean, Path(name).with_name(clean.name))
                elif path.name in _TEXTS:
                    _add(archive, name, redacted(read_inside(folder, path).decode(errors="replace")).encode())
                elif path.name == digests.FILE:
                    _add(archive, name, digests.with_settings(path.parent, redacted))
                else:
                    archive.add(path, name)
            _add(archive, _ABOUT, json.dumps(_versions(), indent=1).encode())
        beside.replace(out)
    finally:
        beside.unlink(missing_ok=True)
    return changed, damaged


def _rollouts(path: Path, scratch: Path, damaged: list[StoreError], *, exact: bool) -> tuple[Path, int]:
    """Return a file of rollouts as it is packed, and how many of it were changed; add to `damaged` what is left out."""
    records: list[CorruptTrajectory] = []
    cleaned = []
    try:
        cleaned += [redacted_rollout(trajectory) for trajectory in TrajectoryReader(path, damaged=records)]
    except StoreError as error:
        damaged.append(error)
    damaged += records
    if exact:
        raise_damaged(damaged)
    count = sum(changed for _, changed in cleaned)
    if not count and not damaged:
        return path, 0
    if exact:
        raise RecordError(
            f"{count} rollouts of {path.name} hold what looks like a secret, and a step's update needs them as they are. "
            "Pack without --step: what looks like a secret is taken out then."
        )
    clean = scratch / f"{path.stem}{SUFFIX}"
    write_segment(clean, [trajectory for trajectory, _ in cleaned])
    return clean, count


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _versions() -> dict[str, object]:
    packages = {each.metadata["Name"]: each.version for each in distributions()}
    machine = f"{platform.system()} {platform.machine()}"
    return {
        "python": platform.python_version(),
        "machine": machine,
        "packages": dict(sorted(packages.items())),
    }


def unpack_command(file: Path, out: Path) -> None:
    """Unpack into a new folder. Raise `RecordError` for what is no pack; nothing of it is kept then."""
    if out.exists():
        raise RecordError(f"{out} is there already: expected a new folder. Choose another --out.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as scratch:
        try:
            with open_regular(file) as stored, _plain(stored) as plain:
                count = _extract(cast("BinaryIO", Rewinding(plain)), Path(scratch))
        except InvalidArgument as error:
            raise RecordError(f"{file}: {error} Nothing was unpacked.") from error
        except (OSError, EOFError, tarfile.TarError, zlib.error, ValueError, OverflowError) as error:
            raise (
                error if isinstance(error, RecordError) else RecordError(f"{file} is no pack: {error}.")
            ) from error
        if not (Path(scratch) / _ABOUT).is_file():
            raise RecordError(f"{file} is no pack: it holds no {_ABOUT}. `ale replay pack` writes them.")
        Path(scratch).rename(out)
    stdout().print(f"{count} files in {out}: `ale replay list {out}`")


class _PackMember(TarMember):
    NOUN, FEWER = "the pack", "pack fewer"


def _plain(stored: BinaryIO) -> BinaryIO | gzip.GzipFile:
    """Return what a gzip file holds, or the file itself."""
    magic = stored.read(len(_GZIP))
    stored.seek(0)
    return gzip.GzipFile(fileobj=stored) if magic == _GZIP else stored


def _extract(file: BinaryIO, folder: Path) -> int:
    size = count = 0
    seen: set[PurePosixPath] = set()
    free = shutil.disk_usage(folder).free
    for archive, entry in members(file, _PackMember):
        path = PurePosixPath(entry_path(entry.name, "path", _PackMember))
        if not entry.isreg() or len(path.parts) > _MOST_PARTS or path in seen:
            raise RecordError(
                f"a pack holds plain files in at most {_MOST_PARTS - 1} folders below itself, each once, got "
                f"{entry.name[:200]!r}. Nothing was unpacked."
            )
        seen.add(path)
        count, size = count + 1, size + entry.size
        if count > _MOST_FILES or size > _MOST_BYTES:
            raise RecordError(
                f"a pack has at most {_MOST_FILES} files of {_MOST_BYTES} bytes together, got more. Nothing was unpacked."
            )
        if size > free:
            raise RecordError(
                f"the pack takes more than the {free} bytes that are free in {folder.parent}. Nothing was unpacked."
            )
        archive.extract(entry, folder, filter="data")
    return count
