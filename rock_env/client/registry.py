"""What a user asks of the registry: register a folder or an image, see the build, list, delete, validate.

A build's log survives a lost connection: it is read on from where it broke off, by the build's id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rock_env.client.build_context import packed
from rock_env.client.connection import ServiceConnection
from rock_env.client.credentials import Credentials
from rock_env.errors import InfraError, Unavailable
from rock_env.proto.v1 import registry_pb2 as pb
from rock_env.proto.v1 import registry_pb2_grpc
from rock_env.spec import SandboxSpec
from rock_env.wire.fields import read
from rock_env.wire.sandboxes import spec_message

__all__ = ["CheckReport", "Image", "RegistryClient"]

_CHUNK_BYTES = 1 << 20
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Image:
    """A registered image. Times in seconds since the epoch."""

    name: str
    image_id: str
    context_digest: str
    source: str
    size_bytes: int
    created_at: float
    used_at: float
    evicted: bool
    built_now: bool
    """Register built it, rather than finding it built."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """One check of the conformance gate: `result` is PASS, FAIL or SKIP."""

    name: str
    result: str
    evidence: str
    duration_s: float


def _ignored(*_: object) -> None:
    return


class RegistryClient(ServiceConnection):
    """A connection to the registry at `address`. `retry_for_s` bounds how long a lost build log is asked for again."""

    def __init__(
        self, address: str, *, credentials: Credentials | None = None, retry_for_s: float = 30.0
    ) -> None:
        super().__init__(
            address, registry_pb2_grpc.RegistryServiceStub, credentials=credentials, timeout_s=None
        )
        self._retry_for_s = retry_for_s

    async def register(
        self,
        folder: Path,
        name: str,
        *,
        dockerfile: str = "Dockerfile",
        build_args: Mapping[str, str] | None = None,
        on_upload: Callable[[int, int], None] = _ignored,
        on_log: Callable[[bytes], None] = _ignored,
    ) -> Image:
        """Build a folder and give the image a name.

        `on_upload(sent, total)` counts bytes; `on_log` gets the builder's words as they come. Raise `InvalidArgument`
        with the failing step if it does not build.
        """
        archive = await asyncio.to_thread(packed, folder, dockerfile=dockerfile)
        try:
            start = pb.RegisterStart(name=name, dockerfile=dockerfile, build_args=build_args or {})
            requests = _requests(start, archive, on_upload)
            call = self._call("Register", requests)
            return await self._followed(call, on_log)
        finally:
            archive.close()

    async def adopt(self, image: str, name: str) -> Image:
        """Give an image that the server's engine has a name."""
        start = pb.RegisterRequest(start=pb.RegisterStart(name=name, image=image))
        call = self._call("Register", iter([start]))
        return await self._followed(call, _ignored)

    async def get(self, name: str) -> Image:
        """Return one image. Raise `NotFound`."""
        return read(await self._ask("Get", pb.GetImageRequest(name=name)), Image)

    async def list(self) -> list[Image]:
        """Return the tenant's images by name."""
        return [read(image, Image) for image in (await self._ask("List", pb.ListImagesRequest())).images]

    async def delete(self, name: str) -> Image:
        """Take the name away; the image goes when nothing uses it. Raise `NotFound`."""
        return read(await self._ask("Delete", pb.DeleteImageRequest(name=name)), Image)

    async def validate(self, spec: SandboxSpec) -> AsyncGenerator[CheckReport]:
        """Yield each check of the conformance gate as it ends."""
        request = pb.ValidateRequest(spec=spec_message(spec))
        async with self._asking():
            async for report in self._call("Validate", request):
                result = pb.CheckResult.Name(report.result).removeprefix("CHECK_RESULT_")
                yield CheckReport(report.name, result, report.evidence, report.duration_s)

    async def _followed(self, call: Any, on_log: Callable[[bytes], None]) -> Image:
        """Read a build to its end, over as many connections as it takes once its id is known."""
        build_id, offset, deadline = "", 0, 0.0
        while True:
            try:
                async with self._asking(), aclosing(_events(call)) as events:
                    async for event in events:
                        build_id, deadline = event.build_id, 0.0
                        kind = event.WhichOneof("kind")
                        if kind == "image":
                            return read(event.image, Image)
                        if kind == "log":
                            on_log(event.log.data)
                            offset = event.log.offset + len(event.log.data)
                raise InfraError(
                    f"the server ended the log of {build_id or 'a build'} without saying how it ended."
                )
            except Unavailable:
                deadline = deadline or time.monotonic() + self._retry_for_s
                if not build_id or time.monotonic() > deadline:
                    raise
                await asyncio.sleep(_PAUSE_S)
                request = pb.WatchBuildRequest(build_id=build_id, offset=offset)
                call = self._call("WatchBuild", request)


async def _events(call: Any) -> AsyncGenerator[Any]:
    try:
        async for event in call:
            yield event
    finally:
        call.cancel()


async def _requests(
    start: pb.RegisterStart, archive: BinaryIO, on_upload: Callable[[int, int], None]
) -> AsyncIterator[pb.RegisterRequest]:
    yield pb.RegisterRequest(start=start)
    total, sent = archive.seek(0, 2), 0
    archive.seek(0)
    while block := await asyncio.to_thread(archive.read, _CHUNK_BYTES):
        yield pb.RegisterRequest(tar=block)
        sent += len(block)
        on_upload(sent, total)
