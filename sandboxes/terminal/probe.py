"""The program that looks at what the agent left: reads what to look at as JSON, prints what is there as JSON.

Its text is run by `grade` in a box the agent has left, by `python3 -I -c`; only tests import it. It holds no answer: what
is expected stays on the host, so nothing in the box can find it here. Commands run last, after all files were read.
Repositories are read through a bare one of the probe's own, so that no setting, flag or replacement of the agent's counts.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

MOST_BYTES = 1 << 20
"""Of a file, a member of an archive and a command's output so much is read."""
MOST_UNPACKED_BYTES = 16 << 20
MOST_FILES = 3000
COMMAND_S = 10.0
COMMANDS_S = 40.0
"""All commands together: what an agent planted may hang each of them."""
_OPENERS: tuple[tuple[str, bytes, Callable[[io.BytesIO], Any]], ...] = (
    ("gz", b"\x1f\x8b", gzip.open),
    ("bz2", b"BZh", bz2.open),
    ("xz", b"\xfd7zXZ", lzma.open),
)
_HASH = re.compile("[0-9a-f]{40}")
_REFS = "refs/heads", "refs/tags"
_REFSPECS = tuple(f"+{kind}/*:{kind}/*" for kind in _REFS)
_FETCH = "fetch", "-q", "--no-tags", "--no-auto-maintenance", "--update-head-ok"
_GIT_ENV = {
    "PATH": os.environ.get("PATH", os.defpath),
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
}
_UNREADABLE = (OSError, EOFError, ValueError, lzma.LZMAError, zipfile.BadZipFile, subprocess.SubprocessError)


def _read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(MOST_BYTES)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _digest(data: bytes) -> str:
    return "file " + hashlib.sha256(data).hexdigest()


def look_at_file(path: str) -> Any:
    """Return type, permissions and text (or target) of one file, or None if there is none.

    A link that leads to a regular file below the present folder has that file's text, and `leads_to`.
    """
    try:
        found = os.lstat(path)
    except OSError:
        return None
    seen = {"mode": stat.S_IMODE(found.st_mode), "type": "special file", "text": "", "target": ""}
    if stat.S_ISLNK(found.st_mode):
        seen |= {"type": "link", "target": str(Path(path).readlink())}
        real = Path(os.path.realpath(path))
        if real.is_relative_to(Path.cwd()) and real.is_file():
            seen |= {"leads_to": "file", "text": _text(_read(str(real)))}
    elif stat.S_ISDIR(found.st_mode):
        seen["type"] = "folder"
    elif stat.S_ISREG(found.st_mode):
        seen |= {"type": "file", "text": _text(_read(path))}
    return seen


def look_at_tree(path: str) -> Any:
    """Return [what it is, permissions] of everything below a folder but folders, or None if there is none."""
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        return None
    seen: dict[str, list[Any]] = {}
    for folder, folders, files in os.walk(path):
        for name in folders + files:
            here = Path(folder) / name
            found = here.lstat()
            if stat.S_ISDIR(found.st_mode):
                continue
            if stat.S_ISLNK(found.st_mode):
                what = f"link {here.readlink()}"
            else:
                what = _digest(_read(str(here))) if stat.S_ISREG(found.st_mode) else "special file"
            seen[str(here.relative_to(path))] = [what, stat.S_IMODE(found.st_mode)]
            if len(seen) > MOST_FILES:
                return None
    return seen


def look_at_archive(path: str) -> Any:
    """Return the format (`tar`, `tar.gz`, `zip`, `gz` ...) and what the members are, folders left out."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return None
    data = _read(path)
    members = {}
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for entry in archive.infolist():
                if not entry.is_dir():
                    members[os.path.normpath(entry.filename)] = _digest(archive.open(entry).read(MOST_BYTES))
        return {"format": "zip", "members": members}
    packing = ""
    for name, magic, opener in _OPENERS:
        if data.startswith(magic):
            packing, data = name, opener(io.BytesIO(data)).read(MOST_UNPACKED_BYTES)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            for item in tar:
                content = tar.extractfile(item) if item.isfile() else None
                if content is not None:
                    members[os.path.normpath(item.name)] = _digest(content.read(MOST_BYTES))
                elif not item.isdir():
                    members[os.path.normpath(item.name)] = "special file"
    except tarfile.TarError:
        return {"format": packing, "members": {"": _digest(data)}}
    return {"format": f"tar.{packing}" if packing else "tar", "members": members}


def look_by_running(
    argv: list[str], folder: str, timeout_s: float, env: dict[str, str] | None = None, given: bytes = b""
) -> Any:
    """Return the exit status and standard output of a command that reads `given`.

    Raise `TimeoutExpired`, and end it with all its children.
    """
    with subprocess.Popen(
        argv,
        cwd=folder,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as running:
        try:
            output, _ = running.communicate(given, timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    return {"exit": running.returncode, "out": _text(output[:MOST_BYTES])}


class BareCopy:
    """What the repository in a folder holds, read by git without anything that the agent could set.

    Branches, tags and HEAD are read from files. Git then copies what they reach from the folder of objects into a new bare
    repository, in which each object is what its hash says.
    """

    def __init__(self, folder: str, until: float) -> None:
        self._folder, self._until = folder, until
        self._held = tempfile.TemporaryDirectory()
        self._place = Path(self._held.name)
        git = Path(folder, ".git")
        if git.is_file():
            named = _text(_read(str(git))).removeprefix("gitdir:").strip()
            git = Path(folder, named)
        self._index = git / "index"
        raw, self._bare = self._place / "raw", self._place / "bare"
        for made in (raw, self._bare):
            for name in ("objects/info", "refs"):
                (made / name).mkdir(parents=True)
            (made / "config").write_text("[core]\nrepositoryformatversion = 0\nbare = true\n")
            (made / "HEAD").write_bytes(self._head(git))
        (raw / "objects/info/alternates").write_text(f"{(git / 'objects').absolute()}\n")
        refs = "".join(f"{value} {name}\n" for name, value in sorted(self._refs(git).items()))
        (raw / "packed-refs").write_text(refs)
        taken = self._git(raw, f"--git-dir={self._bare}", *_FETCH, str(raw), *_REFSPECS)
        if taken["exit"]:
            raise ValueError("its objects are not whole")

    def _head(self, git: Path) -> bytes:
        file = git / "HEAD"
        if not file.is_file():
            raise ValueError("no HEAD")
        return _read(str(file))

    def _refs(self, git: Path) -> dict[str, str]:
        """Return branches and tags: those packed, and over them those with a file."""
        refs = {}
        packed = git / "packed-refs"
        if packed.is_file():
            for line in _text(_read(str(packed))).splitlines():
                value, _, name = line.partition(" ")
                refs[name] = value
        for kind in _REFS:
            for folder, _, names in os.walk(git / kind):
                for file in (Path(folder, name) for name in names):
                    if file.is_file():
                        refs[str(file.relative_to(git))] = _text(_read(str(file))).strip()
        return {
            name: value
            for name, value in refs.items()
            if name.startswith(tuple(f"{kind}/" for kind in _REFS)) and _HASH.fullmatch(value)
        }

    def _git(self, folder: Path, *words: str, given: bytes = b"", **env: str) -> Any:
        left = max(0.0, min(COMMAND_S, self._until - time.monotonic()))
        return look_by_running(["git", *words], str(folder), left, {**_GIT_ENV, **env}, given)

    def says(self, words: list[str]) -> Any:
        """Return what a git command says of it."""
        return self._git(self._bare, *words)

    def says_of(self, words: list[str], named_in: str) -> Any:
        """Return what a git command says of the commit whose whole hash a file holds."""
        named = (look_at_file(named_in) or {"text": ""})["text"].rstrip("\n")
        return self.says([*words, named]) if _HASH.fullmatch(named) else None

    def ignored(self, paths: list[str]) -> list[str]:
        """Return the paths that the files `.gitignore` of HEAD have git ignore."""
        tree = self._place / "tree"
        for name, (mode, value) in self._tree().items():
            parts = Path("/", name).parts
            if parts[-1] == ".gitignore" and ".." not in parts and mode.startswith("100"):
                file = tree.joinpath(*parts[1:])
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(self.says(["cat-file", "blob", value])["out"])
        tree.mkdir(exist_ok=True)
        over = f"--git-dir={self._bare}", "-c", "core.bare=false", f"--work-tree={tree}"
        asked = "\0".join(paths).encode("utf-8", "surrogateescape")
        told = self._git(tree, *over, "check-ignore", "--no-index", "-z", "--stdin", given=asked)
        return [path for path in told["out"].split("\0") if path]

    def _tree(self) -> dict[str, tuple[str, str]]:
        entries = self.says(["ls-tree", "-r", "-z", "HEAD"])["out"].split("\0")
        words = (entry.partition("\t") for entry in entries if entry)
        return {name: (what.split()[0], what.split()[2]) for what, _, name in words}

    def changed(self) -> list[str]:
        """Return the paths of the work tree that are not as HEAD has them, and `index` if that is not."""
        wanted = self._tree()
        got: dict[str, tuple[str, str]] = {}
        for folder, folders, files in os.walk(self._folder):
            if folder == self._folder:
                folders[:] = [name for name in folders if name != ".git"]
                files = [name for name in files if name != ".git"]
            for name in [*folders, *files]:
                path = Path(folder, name)
                if not path.is_dir() or path.is_symlink():
                    got[str(path.relative_to(self._folder))] = _blob(path)
            if len(got) > MOST_FILES:
                raise ValueError("too many files")
        new = sorted(got.keys() - wanted.keys())
        ignored = self.ignored(new) if new else []
        changed = [name for name in wanted if got.get(name) != wanted[name]]
        return [*changed, *(name for name in new if name not in ignored), *self._staged()]

    def _staged(self) -> list[str]:
        index = self._place / "index"
        if self._index.is_file():
            index.write_bytes(_read(str(self._index)))
        words = "diff-index", "--cached", "--quiet", "HEAD", "--"
        same = self._git(self._bare, *words, GIT_INDEX_FILE=str(index))["exit"] == 0
        return [] if same else ["index"]


def _blob(path: Path) -> tuple[str, str]:
    """Return mode and hash that git gives a file or link; other things have none."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        mode, data = "120000", os.fsencode(path.readlink())
    elif stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES:
        mode, data = "100755" if found.st_mode & stat.S_IXUSR else "100644", path.read_bytes()
    else:
        return "", ""
    return mode, hashlib.sha1(b"blob %d\0%s" % (len(data), data), usedforsecurity=False).hexdigest()


_copied = cache(BareCopy)


def look_at_repository(wanted: dict[str, Any], until: float) -> Any:
    """Return what is asked of a repository."""
    repository = _copied(wanted["path"], until)
    match wanted:
        case {"ignored": paths}:
            return repository.ignored(paths)
        case {"words": words, "named_in": file}:
            return repository.says_of(words, file)
        case {"words": words}:
            return repository.says(words)
        case _:
            return repository.changed()


def look(wanted: dict[str, Any], until: float) -> Any:
    """Return what is there, or None for what is absent or broken. No command runs beyond `until` (monotonic)."""
    path = wanted["path"]
    try:
        match wanted["kind"]:
            case "file":
                return look_at_file(path)
            case "tree":
                return look_at_tree(path)
            case "archive":
                return look_at_archive(path)
            case "git":
                return look_at_repository(wanted, until)
            case _:
                return look_by_running(
                    wanted["argv"], path, max(0.0, min(COMMAND_S, until - time.monotonic()))
                )
    except _UNREADABLE:
        return None


def main() -> None:
    """Look at everything that standard input asks for."""
    asked = json.load(sys.stdin)
    looks = asked["looks"]
    seen = [None] * len(looks)
    until = time.monotonic() + COMMANDS_S
    if Path(asked["folder"]).is_dir():
        os.chdir(asked["folder"])
        for number in sorted(range(len(looks)), key=lambda number: looks[number]["kind"] in ("git", "run")):
            seen[number] = look(looks[number], until)
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
