"""The program that looks at what the agent left: reads what to look at as JSON, prints what is there as JSON.

Its text is run by `grade` in a box the agent has left, by `python3 -I -c`; only tests import it. It holds no answer: what
is expected stays on the host, so nothing in the box can find it here. Commands run last, after all files were read.
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
import signal
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
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
_UNREADABLE = (OSError, EOFError, ValueError, lzma.LZMAError, zipfile.BadZipFile, subprocess.SubprocessError)


def _read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(MOST_BYTES)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _digest(data: bytes) -> str:
    return "file " + hashlib.sha256(data).hexdigest()


def look_at_file(path: str) -> Any:
    """Return type, permissions and text (or target) of one file, or None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    seen = {"mode": stat.S_IMODE(found.st_mode), "type": "special file", "text": "", "target": ""}
    if stat.S_ISLNK(found.st_mode):
        seen |= {"type": "link", "target": str(Path(path).readlink())}
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


def look_by_running(argv: list[str], folder: str, timeout_s: float) -> Any:
    """Return the exit status and standard output of a command. Raise `TimeoutExpired`, and end it with all its children."""
    with subprocess.Popen(
        argv,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as running:
        try:
            output, _ = running.communicate(timeout=timeout_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    return {"exit": running.returncode, "out": _text(output[:MOST_BYTES])}


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
        for number in sorted(range(len(looks)), key=lambda number: looks[number]["kind"] == "run"):
            seen[number] = look(looks[number], until)
    json.dump(seen, sys.stdout)


if __name__ == "__main__":
    main()
