"""How the sandbox client's calls travel: one stub, the token, the trace, and retries that repeat nothing.

Used by the classes of `client/sandbox/sandboxes` and `client/sandbox*`. It knows no call's meaning; which of them may
be sent twice is their business: they say so by a key, or because the call is idempotent.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import grpc
from opentelemetry.trace import SpanKind

from rock_env.client.retry import Backoff, retrying, rock_error
from rock_env.errors import InvalidArgument, RockError, Unavailable
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1 import sandbox_pb2_grpc
from rock_env.telemetry import tracing
from rock_env.wire.bulk import add_bulk_calls

__all__ = ["SandboxCalls", "texts"]

T = TypeVar("T")

_SERVICE = pb.DESCRIPTOR.services_by_name["SandboxService"].full_name


def texts(given: Mapping[str, str] | None, what: str) -> dict[str, str]:
    """Return the pairs of a call, none for None. Raise `InvalidArgument` for what is no text."""
    pairs = dict(given or {})
    for pair in pairs.items():
        if not all(isinstance(one, str) for one in pair):
            raise InvalidArgument(
                f"bad {what} {pair!r}: expected text for text, got {pair[1]!r}. Write str(…)."
            )
    return pairs


class SandboxCalls:
    """The SandboxService of the server at `address`, over a channel that its client owns."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        address: str,
        metadata: tuple[tuple[str, str], ...] | None,
        retry_for_s: float,
        key: Callable[[], str],
    ) -> None:
        self.stub = sandbox_pb2_grpc.SandboxServiceStub(channel)
        add_bulk_calls(self.stub, channel)
        self.address = address
        self.retry_for_s = retry_for_s
        self.key = key
        self._metadata = metadata

    async def unary(self, rpc: str, request: Any, *, again: bool = True, sandbox_id: str = "") -> Any:
        """Send one request and return its reply; `again` where a second one does no harm. Raise its `RockError`."""
        with tracing.span(f"{_SERVICE}/{rpc}", kind=SpanKind.CLIENT, sandbox_id=sandbox_id):
            reply: Any = None

            async def attempt() -> None:
                nonlocal reply
                try:
                    reply = await getattr(self.stub, rpc)(request, metadata=self.metadata())
                except grpc.aio.AioRpcError as failure:
                    raise self.error(failure) from failure.with_traceback(None)

            await retrying(attempt, for_s=self.retry_for_s if again else 0.0)
            return reply

    def open(self, rpc: str, *request: Any) -> Any:
        """Start a stream; its failures are `grpc.aio.AioRpcError`s, which `error` reads."""
        return getattr(self.stub, rpc)(*request, metadata=self.metadata())

    async def read(self, rpc: str, request: Any) -> AsyncGenerator[Any]:
        """Yield the replies of one stream that cannot be taken up again. Raise its `RockError`."""
        call = self.open(rpc, request)
        try:
            async for reply in call:
                yield reply
        except grpc.aio.AioRpcError as failure:
            raise self.error(failure) from failure.with_traceback(None)
        finally:
            call.cancel()

    async def resumed(self, rpc: str, request: Callable[[], Any]) -> AsyncGenerator[Any]:
        """Yield the replies of a stream; a lost connection goes on with what `request` then asks for."""
        backoff = Backoff(self.retry_for_s)
        while True:
            try:
                async with aclosing(self.read(rpc, request())) as replies:
                    async for reply in replies:
                        backoff.success()
                        yield reply
                return
            except Unavailable as error:
                await backoff.failure(error)

    def metadata(self) -> Any:
        """Return what goes with a call made now."""
        return tracing.trace_headers(self._metadata)

    def error(self, failure: grpc.aio.AioRpcError) -> RockError:
        """Return the error a failed call stands for."""
        return rock_error(failure, self.address)[0]
