"""Files of the SandboxService, over gRPC: contents and trees as streams, descriptions, changes.

It keeps no state and never a whole file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from rock_env.errors import InvalidArgument
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.wire.bulk import CHUNK, TAR
from rock_env.wire.sandboxes import file_message, of_one

__all__ = ["FileService"]

Context = Any  # grpc.aio.ServicerContext is generic only in the stubs
Act = Callable[[Any, Context], Awaitable[Any]]
_ONCE = ("sandbox_id", "path", "mode", "append", "idempotency_key")
"""Fields of a WriteFile, said by its first message."""
_SLICE = 200
"""Files of a huge folder that are put into an answer in one turn of the event loop."""


class FileService:
    """The calls, by name in `acts`."""

    def __init__(self, core: SandboxCore) -> None:
        self._core = core
        self.acts: dict[str, Act] = {
            "ReadFile": self._read_file,
            "WriteFile": self._write_file,
            "Upload": self._upload,
            "Download": self._download,
            "Stat": self._stat,
            "ListFiles": self._list_files,
            "WatchFiles": self._watch_files,
        }

    async def _read_file(self, request: pb.ReadFileRequest, context: Context) -> None:
        async with self._core.using(request.sandbox_id) as box:
            stream = box.read_stream(request.path, offset=request.offset, length=request.length or None)
            async with aclosing(stream) as blocks:
                async for block in blocks:
                    await context.write(CHUNK.pack(block))

    async def _write_file(
        self, requests: AsyncIterator[pb.WriteFileRequest], context: Context
    ) -> pb.FileStat:
        first = await anext(aiter(requests), None)
        if first is None:
            raise InvalidArgument("WriteFile needs at least one message, with sandbox_id and path")

        async def blocks() -> AsyncIterator[bytes]:
            more = first.more
            yield first.data
            async for request in of_one(first, requests, *_ONCE):
                more = request.more
                yield request.data
            if (
                more or context.cancelled()
            ):  # the end of a call that is cut off looks like that of its messages
                raise InvalidArgument("WriteFile ended where more was announced; nothing was written")

        async with self._core.using(first.sandbox_id) as box:
            await box.write_stream(
                first.path,
                blocks(),
                mode=first.mode or 0o644,
                append=first.append,
                key=first.idempotency_key,
            )
            return file_message(await box.stat(first.path))

    async def _upload(
        self, requests: AsyncIterator[pb.UploadRequest | memoryview], _: Context
    ) -> pb.TreeSummary:
        first = await anext(aiter(requests), None)
        if first is None or isinstance(first, memoryview):
            raise InvalidArgument("Upload needs at least one message, the first with sandbox_id and path")

        async def blocks() -> AsyncIterator[bytes | memoryview]:
            yield first.tar
            async for request in of_one(first, requests, "sandbox_id", "path"):
                yield TAR.data(request)

        async with self._core.using(first.sandbox_id) as box:
            summary = await box.upload(first.path or ".", blocks())
        return pb.TreeSummary(files=summary.files, bytes=summary.bytes)

    async def _download(self, request: pb.DownloadRequest, context: Context) -> None:
        async with (
            self._core.using(request.sandbox_id) as box,
            aclosing(box.download(request.path or ".")) as blocks,
        ):
            async for block in blocks:
                await context.write(CHUNK.pack(block))

    async def _stat(self, request: pb.StatRequest, _: Context) -> pb.FileStat:
        async with self._core.using(request.sandbox_id) as box:
            return file_message(await box.stat(request.path))

    async def _list_files(self, request: pb.ListFilesRequest, _: Context) -> pb.ListFilesResponse:
        async with self._core.using(request.sandbox_id) as box:
            entries = await box.list_files(request.path or ".", recursive=request.recursive)
        response = pb.ListFilesResponse()
        for start in range(0, len(entries), _SLICE):
            response.files.extend(map(file_message, entries[start : start + _SLICE]))
            await asyncio.sleep(0)
        return response

    async def _watch_files(self, request: pb.WatchFilesRequest, context: Context) -> None:
        async with (
            self._core.using(request.sandbox_id) as box,
            aclosing(box.watch_files(request.path or ".", recursive=request.recursive)) as changes,
        ):
            async for change in changes:
                if change is None:
                    await context.send_initial_metadata(())
                else:
                    shown = change.path.encode(errors="surrogateescape").decode(errors="replace")
                    await context.write(pb.FileEvent(path=shown, kind=change.kind))
