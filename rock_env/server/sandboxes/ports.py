"""What leads into a sandbox from outside: its tokens, the URLs of its ports, and the connections to them.

Used by the SandboxService. A token's hash lies in the sandbox's record, so it survives the server and ends with the
box. A connection is carried by the guest, so a box needs no network for it, and whoever listens in a box on its
loopback address alone is reached as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from rock_env.errors import FailedPrecondition, InvalidArgument, Unimplemented
from rock_env.lifecycle import SandboxRecord
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.security.sandbox_tokens import KEPT, check_port, new_sandbox_token, port_label
from rock_env.server.sandboxes.core import SandboxCore

__all__ = ["Dialled", "Ports"]

_BLOCK_BYTES = 256 << 10


class Dialled(Protocol):
    """A connection to a port of a box."""

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while the other end does not take them."""
        ...

    async def end(self) -> None:
        """Send no more."""
        ...


@runtime_checkable
class _Dials(Protocol):
    def dial(self, port: int) -> AbstractAsyncContextManager[Dialled]: ...


class Ports:
    """The handlers of IssueToken, Expose and Dial. `url` is where clients reach REST, once that is known.

    A `*` in it stands for a label of its own per port, such as `https://*.boxes.example.org`.
    """

    def __init__(self, core: SandboxCore) -> None:
        self._core = core
        self.url = ""
        self.acts: dict[str, Callable[[Any, Any], Awaitable[Any]]] = {
            "IssueToken": self.issue_token,
            "Expose": self.expose,
            "Dial": self.dial,
        }
        """The handlers by the names of their calls."""

    async def issue(self, sandbox_id: str, *, port: int = 0) -> str:
        """Make a token for a live sandbox, or for one port of it; return its text. Raise `NotFound`."""
        kept, text = new_sandbox_token(sandbox_id, port=port)

        def with_token(record: SandboxRecord) -> SandboxRecord:
            return replace(record, tokens=(*record.tokens, kept)[-KEPT:])

        await self._core.amend(sandbox_id, with_token)
        return text

    async def issue_token(self, request: pb.IssueSandboxTokenRequest, _: Any) -> pb.IssueSandboxTokenResponse:
        """Answer IssueToken."""
        return pb.IssueSandboxTokenResponse(token=await self.issue(request.sandbox_id))

    async def expose(self, request: pb.ExposeRequest, _: Any) -> pb.ExposeResponse:
        """Answer Expose: a URL with a token in it for this port alone."""
        _check_number(request.port)
        if not self.url:
            raise FailedPrecondition("this server serves no REST, so it has no URLs: start it with --http")
        async with self._core.using(request.sandbox_id) as box:
            _dial_of(box)
        label = port_label(await self.issue(request.sandbox_id, port=request.port), request.port)
        if "*" in self.url:
            return pb.ExposeResponse(url=self.url.replace("*", label, 1).rstrip("/") + "/")
        return pb.ExposeResponse(url=f"{self.url.rstrip('/')}/ports/{label}/")

    async def dial(self, requests: AsyncIterator[pb.DialRequest], context: Any) -> None:
        """Answer Dial: bytes both ways, until both ends have ended or one is gone."""
        first = await anext(aiter(requests), None)
        if first is None or first.WhichOneof("kind") != "start":
            raise InvalidArgument("the first message of Dial must be `start`")
        _check_number(first.start.port)
        check_port(first.start.port)
        async with (
            self._core.using(first.start.sandbox_id) as box,
            _dial_of(box)(first.start.port) as connection,
        ):
            await context.write(pb.DialReply())
            pump = asyncio.ensure_future(_pump(requests, connection))
            try:
                while data := await connection.read():
                    for start in range(0, len(data), _BLOCK_BYTES):
                        await context.write(pb.DialReply(data=data[start : start + _BLOCK_BYTES]))
            finally:
                pump.cancel()
                await asyncio.wait({pump})
            if not pump.cancelled():
                pump.result()


async def _pump(requests: AsyncIterator[pb.DialRequest], connection: Dialled) -> None:
    async for request in requests:
        if request.WhichOneof("kind") != "data":
            raise InvalidArgument("after `start`, Dial takes data")
        await connection.write(request.data)
    await connection.end()


def _check_number(port: int) -> None:
    if not 1 <= port <= 65535:
        raise InvalidArgument(f"a port is from 1 to 65535, got {port}")


def _dial_of(box: object) -> Any:
    if not isinstance(box, _Dials):
        raise Unimplemented(
            "the ports of this sandbox cannot be reached; run the client of the port with Exec"
        )
    return box.dial
