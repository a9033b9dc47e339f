"""The files of one sandbox: read, write, append, describe, list, watch, and whole trees.

Reached as `box.files`. Relative paths start at the sandbox's working folder. Contents pass in pieces; a read that
loses its connection goes on where it broke off.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from rock_env.client.retry import retrying
from rock_env.client.sandbox.calls import SandboxCalls
from rock_env.client.sandbox.trees import packed, unpacked
from rock_env.client.sandbox.types import FileInfo, Progress, Tree, file_info
from rock_env.errors import RockError, Unavailable
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.sandbox import FileChange
from rock_env.wire.bulk import CHUNK, TAR, keep_large_blocks

__all__ = ["FileWatch", "SandboxFiles"]

_PIECE_BYTES = 1 << 20


def _quiet(_: int) -> None:
    pass


async def _told(pieces: AsyncGenerator[bytes], unreadable: list[OSError]) -> AsyncGenerator[bytes]:
    """Yield the pieces; note the error that ends them, which does not come through a call.

    They are closed here: gRPC may still wait for the next one, in a task of its own, when the call has ended already.
    """
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece
    except OSError as error:
        unreadable.append(error)
        raise


class FileWatch:
    """What changes at one place of a sandbox, from the entry of the block to its end."""

    def __init__(self, calls: SandboxCalls, request: pb.WatchFilesRequest) -> None:
        self._calls = calls
        self._request = request
        self._call: Any = None

    async def __aenter__(self) -> Self:
        async def attempt() -> None:
            self._call = self._calls.open("WatchFiles", self._request)
            try:
                await self._call.initial_metadata()  # it comes once the watch stands
                if self._call.done():
                    await self._call.read()
            except grpc.aio.AioRpcError as failure:
                raise self._calls.error(failure) from failure.with_traceback(None)

        await retrying(attempt, for_s=self._calls.retry_for_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.cancel()

    async def changes(self) -> AsyncGenerator[FileChange]:
        """Yield each change as it happens; of kind `overflow` where some may have been missed: look at the files.

        A lost connection is such a case: the watch goes on and says so.
        """
        while True:
            try:
                event = await self._call.read()
                if event is grpc.aio.EOF:
                    return
                yield FileChange(event.path, event.kind)
            except grpc.aio.AioRpcError as failure:
                error = self._calls.error(failure)
                if not isinstance(error, Unavailable):
                    raise error from failure.with_traceback(None)
                await self.__aenter__()
                yield FileChange("", "overflow")


class SandboxFiles:
    """Files of the sandbox `sandbox_id`. Raise `NotFound`, and `InvalidArgument` for a path outside the box."""

    def __init__(self, calls: SandboxCalls, sandbox_id: str) -> None:
        self._calls = calls
        self._id = sandbox_id

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return a file's bytes from `offset` on, at most `length` of them."""
        content = bytearray()
        async with aclosing(self.stream(path, offset=offset, length=length)) as pieces:
            async for piece in pieces:
                content += piece
        return bytes(content)

    async def stream(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncGenerator[bytes]:
        """Yield a file's bytes in pieces of at most 1 MiB, at flat memory."""
        if length == 0:
            return
        got = 0

        def request() -> pb.ReadFileRequest:
            left = 0 if length is None else length - got
            return pb.ReadFileRequest(sandbox_id=self._id, path=path, offset=offset + got, length=left)

        async with aclosing(self._calls.resumed("ReadFile", request)) as chunks:
            async for chunk in chunks:
                data = CHUNK.data(chunk)
                got += len(data)
                yield bytes(data)

    async def write(
        self, path: str, content: bytes, *, mode: int = 0o644, progress: Progress = _quiet
    ) -> FileInfo:
        """Create or replace a file and its parents, all at once or not at all."""
        return await self._write(path, content, mode=mode, append=False, progress=progress)

    async def append(
        self, path: str, content: bytes, *, mode: int = 0o644, progress: Progress = _quiet
    ) -> FileInfo:
        """Add to the end of a file, exactly once also where the connection breaks; made if absent."""
        return await self._write(path, content, mode=mode, append=True, progress=progress)

    async def _write(
        self, path: str, content: bytes, *, mode: int, append: bool, progress: Progress
    ) -> FileInfo:
        first = pb.WriteFileRequest(
            sandbox_id=self._id,
            path=path,
            mode=mode,
            append=append,
            data=content[:_PIECE_BYTES],
            more=len(content) > _PIECE_BYTES,
        )
        if append:
            first.idempotency_key = self._calls.key()
        written: FileInfo | None = None

        async def requests() -> AsyncIterator[pb.WriteFileRequest]:
            yield first
            progress(len(first.data))
            for at in range(_PIECE_BYTES, len(content), _PIECE_BYTES):
                end = min(at + _PIECE_BYTES, len(content))
                yield pb.WriteFileRequest(data=content[at:end], more=end < len(content))
                progress(end)

        async def attempt() -> None:
            nonlocal written
            try:
                written = file_info(await self._calls.open("WriteFile", requests()))
            except grpc.aio.AioRpcError as failure:
                raise self._calls.error(failure) from failure.with_traceback(None)

        await retrying(attempt, for_s=self._calls.retry_for_s)
        if written is None:
            raise Unavailable(f"writing {path!r} ended without an answer. Write it again.")
        return written

    async def upload(self, local: Path, path: str = ".", *, progress: Progress = _quiet) -> Tree:
        """Send a file to `path`, or the content of a folder into the folder `path`, made if absent; any size.

        Permissions are kept. Where the connection breaks all of it is sent again. Raise `OSError` for what cannot be
        read here, `InvalidArgument` for a device, or a link that leads out, in the tree.
        """
        keep_large_blocks()
        folder, name = (path, "")
        if not await asyncio.to_thread(local.is_dir):
            folder, _, name = path.rpartition("/")
            folder = folder or ("/" if path.startswith("/") else ".")
        summary: Tree | None = None

        async def requests(pieces: AsyncIterator[bytes]) -> AsyncIterator[pb.UploadRequest | bytes]:
            yield pb.UploadRequest(sandbox_id=self._id, path=folder)
            sent = 0
            async for piece in pieces:
                yield TAR.pack(piece)
                sent += len(piece)
                progress(sent)

        async def attempt() -> None:
            nonlocal summary
            unreadable: list[OSError] = []
            pieces = _told(packed(local, name=name), unreadable)
            try:
                reply = await self._calls.open("Upload", requests(pieces))
            except grpc.aio.AioRpcError as failure:
                raise self._calls.error(failure) from failure.with_traceback(None)
            except asyncio.CancelledError:
                if unreadable:  # gRPC cancels a call whose requests raise, and says no more
                    raise unreadable[0] from None
                raise
            summary = Tree(reply.files, reply.bytes)

        await retrying(attempt, for_s=self._calls.retry_for_s)
        assert summary is not None  # else it raised
        return summary

    async def download(self, path: str, local: Path, *, progress: Progress = _quiet) -> Tree:
        """Fetch a file to `local`, or the content of a folder into the folder `local`, made if absent; any size.

        Permissions and links are kept; a link that leads out of `local` is refused with `InvalidArgument`. A file goes
        on where a broken connection stopped it, a tree does not. Raise `NotFound`, `Unavailable`, `OSError`.
        """
        keep_large_blocks()
        about = await self.stat(path)
        if about.directory:
            request = pb.DownloadRequest(sandbox_id=self._id, path=path)
            async with aclosing(self._calls.read("Download", request)) as chunks:
                return await unpacked((CHUNK.data(chunk) async for chunk in chunks), local, progress=progress)
        received = 0
        with await asyncio.to_thread(local.open, "wb") as out:
            async with aclosing(self.stream(path)) as pieces:
                async for piece in pieces:
                    await asyncio.to_thread(out.write, piece)
                    received += len(piece)
                    progress(received)
        if not about.symlink_target:
            await asyncio.to_thread(local.chmod, about.mode)
        return Tree(1, received)

    async def stat(self, path: str) -> FileInfo:
        """Describe one file; a symbolic link is described, not followed."""
        request = pb.StatRequest(sandbox_id=self._id, path=path)
        return file_info(await self._calls.unary("Stat", request, sandbox_id=self._id))

    async def list(self, path: str = ".", *, recursive: bool = False) -> list[FileInfo]:
        """Describe a folder's entries, each by its path from there; links are never followed."""
        request = pb.ListFilesRequest(sandbox_id=self._id, path=path, recursive=recursive)
        reply = await self._calls.unary("ListFiles", request, sandbox_id=self._id)
        return [file_info(entry) for entry in reply.files]

    def watch(self, path: str = ".", *, recursive: bool = False) -> FileWatch:
        """Return a watch on a folder or file, to enter as `async with`: from then on no change is missed."""
        return FileWatch(
            self._calls, pb.WatchFilesRequest(sandbox_id=self._id, path=path, recursive=recursive)
        )

    async def exists(self, path: str) -> bool:
        """Return whether there is something at `path`."""
        try:
            await self.stat(path)
        except RockError as error:
            if error.code == "not_found":
                return False
            raise
        return True
