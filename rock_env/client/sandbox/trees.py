"""Local files and folders as tar streams, at flat memory: what `SandboxFiles.upload` sends and `download` takes.

A thread packs or unpacks; a pipe between it and the event loop holds it back. A stream from a sandbox is not trusted:
whatever would land outside the folder it is unpacked into is refused, and so are devices and pipes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator
from fcntl import fcntl
from pathlib import Path

from rock_env.client.sandbox.types import Progress, Tree
from rock_env.errors import InvalidArgument

__all__ = ["packed", "unpacked"]

_PIECE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031  # linux/fcntl.h


def _pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    with contextlib.suppress(OSError):  # beyond the user's limit: the usual 64 KiB do, slower
        fcntl(writer, _F_SETPIPE_SZ, _PIECE_BYTES)
    return reader, writer


async def packed(path: Path, *, name: str = "") -> AsyncGenerator[bytes]:
    """Yield a folder's content, or a file under `name`, as a tar stream.

    Raise `OSError` for what cannot be read, `InvalidArgument` for a FIFO or device.
    """
    reader, writer = _pipe()
    packing = asyncio.get_running_loop().run_in_executor(None, _pack, path, name, writer)
    try:
        while piece := await asyncio.to_thread(os.read, reader, _PIECE_BYTES):
            yield piece
        await packing
    finally:
        os.close(reader)  # a packer that still writes ends by that
        with contextlib.suppress(BrokenPipeError):
            await packing


def _pack(path: Path, name: str, writer: int) -> None:
    def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            raise InvalidArgument(
                f"cannot copy {member.name}: it is a FIFO or a device, expected files, folders and links. Take it away."
            )
        return member.replace(uid=0, gid=0, uname="", gname="", deep=False)

    with os.fdopen(writer, "wb", buffering=0) as out, tarfile.open(fileobj=out, mode="w|") as tar:
        entries = [(path, name)] if name else [(one, one.name) for one in sorted(path.iterdir())]
        for entry, member in entries:
            tar.add(entry, arcname=member, filter=anonymous)


async def unpacked(pieces: AsyncIterator[bytes | memoryview], folder: Path, *, progress: Progress) -> Tree:
    """Unpack a tar stream into a folder, made if absent, with permissions kept.

    Raise `InvalidArgument` for a member that leads out of it or is no file, folder or link; what came before it stays.
    """
    reader, writer = _pipe()
    unpacking = asyncio.get_running_loop().run_in_executor(None, _unpack, folder, reader)
    received = 0
    try:
        with contextlib.suppress(BrokenPipeError):  # the unpacker says why it stopped
            async for piece in pieces:
                await asyncio.to_thread(_write, writer, piece)
                received += len(piece)
                progress(received)
    except BaseException:
        os.close(writer)
        with contextlib.suppress(
            tarfile.ReadError, InvalidArgument, OSError
        ):  # cut short by the error we tell
            await unpacking
        raise
    os.close(writer)
    return await unpacking


def _write(fd: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _unpack(folder: Path, reader: int) -> Tree:
    files = size = 0

    def safe(member: tarfile.TarInfo, into: str) -> tarfile.TarInfo | None:
        nonlocal files, size
        checked = tarfile.data_filter(member, into)
        if checked is not None and not member.issym():
            files += member.isreg()
            size += member.size
            # The filter takes write permissions away from others; what is ours to decide is where a file lands.
            checked = checked.replace(mode=stat.S_IMODE(member.mode) & 0o777, deep=False)
        return checked

    folder.mkdir(parents=True, exist_ok=True)
    try:
        with os.fdopen(reader, "rb") as source, tarfile.open(fileobj=source, mode="r|") as tar:
            tar.extractall(folder, filter=safe)
            while source.read(_PIECE_BYTES):
                pass  # the zeros after the end
    except (tarfile.FilterError, ValueError, OverflowError) as error:  # such as a time that is no number
        raise InvalidArgument(f"refused to unpack what the sandbox sent: {error}") from error
    return Tree(files, size)
