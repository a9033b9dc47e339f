"""One call on its way to another replica, byte for byte; what `forward` and `episodes` make their calls of."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError, Message

from rock_env.errors import InvalidArgument, RockError, Unavailable
from rock_env.server.calls import fail, rpc_handler
from rock_env.server.parsing import check_counts, is_short_work, off_loop
from rock_env.server.replicas.member import Replica
from rock_env.store.postgres.members import Member

__all__ = ["Carrier", "ForwardedCall", "answered", "fail_like"]

Context = Any  # grpc.aio.ServicerContext is generic only in the stubs
Handler = Any


class Carrier(Protocol):
    """The way to other replicas."""

    @property
    def replica(self) -> Replica:
        """Return this server as a member."""
        ...

    async def destination(self, sandbox_id: str) -> tuple[Member, grpc.aio.Channel] | None:
        """Return the replica that has a sandbox and a channel to it; None: it is here. Raise `Unavailable`."""
        ...

    async def here(self, sandbox_id: str) -> None:
        """Wait until a sandbox, which another replica sent a caller for, is here or known not to be."""
        ...

    async def image_place(self, spec: Any) -> tuple[Member, grpc.aio.Channel] | None:
        """Return a replica that has the image of a new sandbox's spec, and a channel to it; None: this one does as well."""
        ...

    async def reach(self, member: Member) -> grpc.aio.Channel | None:
        """Return a channel that is connected to a replica, or None if it is gone. Raise `Unavailable`."""
        ...

    async def departed(self, member: Member) -> None:
        """Wait until a replica is no member any more."""
        ...

    def signed(self, member: Member, path: str) -> list[tuple[str, str | bytes]]:
        """Return the pass for one call of a replica in the name of the present caller."""
        ...

    def metadata(self, context: Context, member: Member, path: str) -> list[tuple[str, str | bytes]]:
        """Return what goes with a forwarded call."""
        ...


class ForwardedCall:
    """One method's handler with forwarding before it; it takes and gives raw messages. Subclasses say where it belongs."""

    def __init__(
        self,
        interceptor: Carrier,
        inner: Handler,
        path: str,
        request_type: type[Message],
        *,
        may_forward: bool,
    ) -> None:
        self.interceptor = interceptor
        self.inner = inner
        self.path = path
        self.request_type = request_type
        self.may_forward = may_forward
        self._streamed = bool(inner.response_streaming)

    def wrapped(self) -> Handler:
        serialize = self.inner.response_serializer

        def serialized(message: Any) -> bytes:
            return message if isinstance(message, bytes) or serialize is None else bytes(serialize(message))

        streams = bool(self.inner.request_streaming), self._streamed
        return rpc_handler(streams, self._handle, None, serialized)

    async def where(self, message: Message) -> tuple[Member, grpc.aio.Channel] | None:
        """Return where the call belongs by its first message, and a channel there; None: here. Raise `RockError`."""
        raise NotImplementedError

    async def _handle(self, request: Any, context: Context) -> Any:
        try:
            rest: AsyncIterator[bytes] | None = None
            first: bytes | None = request
            if self.inner.request_streaming:
                rest = aiter(request)
                first = await anext(rest, None)
            place = None if first is None else await self.where(await self.read(first))
            if place is not None and first is not None:
                return await self.forward(*place, first, rest, context)
        except RockError as error:
            return await fail(context, error)
        return await self.locally(first, rest, context)

    async def read(self, raw: bytes) -> Message:
        """Return a message; one of many parts is parsed off the event loop. Raise `InvalidArgument`."""
        if is_short_work(raw, self.request_type.DESCRIPTOR):
            return self._parsed(raw)
        return await off_loop(self._parsed, raw)

    def _parsed(self, raw: bytes) -> Message:
        check_counts(raw, self.request_type.DESCRIPTOR)
        try:
            return self.request_type.FromString(raw)
        except DecodeError as error:
            raise InvalidArgument(f"the request is no {self.request_type.DESCRIPTOR.name}") from error

    async def locally(self, first: bytes | None, rest: AsyncIterator[bytes] | None, context: Context) -> Any:
        inner = self.inner
        parse = inner.request_deserializer or bytes

        async def messages() -> AsyncIterator[Any]:
            if first is not None:
                yield parse(first)
            assert rest is not None  # a streaming call
            async for raw in rest:
                yield parse(raw)

        act = getattr(
            inner,
            f"{'stream' if inner.request_streaming else 'unary'}_{'stream' if self._streamed else 'unary'}",
        )
        reply = act(messages() if rest is not None else parse(first or b""), context)
        if inspect.isasyncgen(reply):
            async for message in reply:
                await context.write(message)
            return None
        return await reply

    async def forward(
        self,
        member: Member,
        channel: grpc.aio.Channel,
        first: bytes,
        rest: AsyncIterator[bytes] | None,
        context: Context,
    ) -> Any:
        # On the wire a stream fits every shape of call.
        call = channel.stream_stream(self.path)(
            timeout=context.time_remaining(),
            metadata=self.interceptor.metadata(context, member, self.path),
        )
        pump = asyncio.ensure_future(_pump(call, first, rest))
        gone = asyncio.ensure_future(self.interceptor.departed(member))
        gone.add_done_callback(lambda _: call.cancel())  # it may hang without hanging up
        reply: bytes | None = None
        try:
            if self._streamed:
                # Some calls say by it that they stand, long before their first message.
                await call.initial_metadata()
                await context.send_initial_metadata(())
            async for reply in call:
                if self._streamed:
                    await context.write(reply)
            await _finish(context, call)
        except grpc.aio.AioRpcError as failure:
            await fail_like(context, failure, member)
        except asyncio.CancelledError:
            if not gone.done() or gone.cancelled():
                raise  # by the caller
            await fail(context, _went_away(member))
        finally:
            gone.cancel()
            pump.cancel()
            call.cancel()
            with suppress(asyncio.CancelledError):
                await pump
        return None if self._streamed else reply


async def _pump(call: Any, first: bytes, rest: AsyncIterator[bytes] | None) -> None:
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):  # the call has ended: its reader says how
        await call.write(first)
        if rest is not None:
            async for raw in rest:
                await call.write(raw)
        await call.done_writing()


async def _finish(context: Context, call: Any) -> None:
    context.set_trailing_metadata(_ours(await call.trailing_metadata()))


def answered(failure: grpc.aio.AioRpcError) -> bool:
    """Return whether the other replica's own handler ended the call, and no lost connection."""
    return any(key == "rock-error-code" for key, _ in failure.trailing_metadata() or ())


async def fail_like(context: Context, failure: grpc.aio.AioRpcError, member: Member) -> None:
    """Let the caller see what the other replica answered."""
    trailing = _ours(failure.trailing_metadata())
    lost = failure.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    if lost and not answered(failure):
        await fail(context, _went_away(member))
    await context.abort(failure.code(), failure.details() or "", trailing_metadata=trailing)


def _went_away(member: Member) -> Unavailable:
    return Unavailable(
        f"replica {member.id}, whose sandbox or environment it is, went away during the call: its outcome is unknown. Ask "
        "again with the same idempotency key: a sandbox is taken over, an environment has to be made again.",
        retry_after_s=1.0,
    )


def _ours(metadata: Any) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in metadata or () if key.startswith("rock-"))
