"""`ale rock cp`: files and folders into a sandbox and out of it, as `cp -r` would.

What arrived is said on standard error, with progress where that is a terminal.
"""

from __future__ import annotations

import asyncio
import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from ale.rock.boxes import find_box, server
from ale.terminal import stderr
from ale.waiting import awaited, unsaid
from rock_env.client.sandbox.files import SandboxFiles
from rock_env.client.sandbox.types import Progress as Told
from rock_env.client.sandbox.types import Tree
from rock_env.errors import InvalidArgument, NotFound, RockError

__all__ = ["copy_command", "remote"]

_FULL = (errno.ENOSPC, errno.EDQUOT)


def remote(word: str) -> tuple[str, str] | None:
    """Return the sandbox and path that `ID:PATH` names, or None for a path of this machine."""
    box, colon, path = word.partition(":")
    return (box, path or ".") if colon and box and "/" not in box else None


def copy_command(address: str, source: str, target: str) -> None:
    """Copy between this machine and a sandbox. Raise `RockError`, or `OSError` where this machine's disk is full."""
    here, there = remote(source), remote(target)
    if (here is None) == (there is None):
        both = "two sandboxes" if here else "two paths of this machine"
        raise InvalidArgument(
            f"got {both}: expected one of SRC and DST to be ID:PATH. A local ./a:b needs its ./."
        )
    try:
        copying = _down(address, here, target) if here else _up(address, source, there or ("", ""))
        tree = awaited(copying, f"the copy of {source}")
    except RockError:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise
        raise InvalidArgument(f"cannot copy {error.filename or source}: {error.strerror}.") from error
    files = f"{tree.files} file{'' if tree.files == 1 else 's'}"
    sys.stderr.write(f"{files}, {tree.bytes} bytes\n")


async def _up(address: str, source: str, target: tuple[str, str]) -> Tree:
    local = Path(source)
    if not await asyncio.to_thread(local.exists):
        raise NotFound(f"no file or folder {source} here.")
    async with server(address) as client:
        box = await client.sandboxes.attach((await find_box(client, target[0])).id)
        path = target[1]
        if await _is_folder(box.files, path) or path.endswith("/"):
            path = f"{path.rstrip('/')}/{local.resolve().name}"  # noqa: ASYNC240  no file is read
        total = await asyncio.to_thread(_size, local)
        with _progress(f"to {box.id}", total) as told:
            return await box.files.upload(local, path, progress=told)


async def _down(address: str, source: tuple[str, str], target: str) -> Tree:
    local = Path(target)
    async with server(address) as client:
        box = await client.sandboxes.attach((await find_box(client, source[0])).id)
        about = await box.files.stat(source[1])
        if await asyncio.to_thread(local.is_dir):
            local /= Path(source[1]).name or box.id
        with _progress(f"from {box.id}", None if about.directory else about.size) as told:
            return await box.files.download(source[1], local, progress=told)


async def _is_folder(files: SandboxFiles, path: str) -> bool:
    try:
        return (await files.stat(path)).directory
    except NotFound:
        return False


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files)


@contextmanager
def _progress(title: str, total: int | None) -> Iterator[Told]:
    console = stderr()
    shown_beside = unsaid() if console.is_terminal else nullcontext()
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with (
        shown_beside,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown,
    ):
        task = shown.add_task(title, total=total)
        yield lambda count: shown.update(task, completed=count)
