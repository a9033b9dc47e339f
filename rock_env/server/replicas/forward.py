"""Carries a call to the replica that has its sandbox, byte for byte, so that clients may call any of them.

Installed by `server/app.py` behind the guard at the door of a server that shares its store, so what comes here was
admitted. Which sandbox a call is about stands in its first message; nothing else of it is read. The other replica is
told by a signed pass for which tenant it acts; a client's token goes no further than the replica it was shown to.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from rock_env.errors import InvalidArgument, RockError, Unauthenticated, Unavailable
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.security.auth import current_tenant
from rock_env.security.sandbox_tokens import current_limit
from rock_env.server.calls import fail
from rock_env.server.parsing import check_counts
from rock_env.server.replicas.member import UNREACHABLE_S, Replica, not_reached
from rock_env.server.replicas.passes import HEADER, Admitted, Passes
from rock_env.store.postgres.members import Member
from rock_env.telemetry.logs import add_log_ids
from rock_env.wire.channel import CLIENT_OPTIONS, target

__all__ = ["ForwardInterceptor", "sandbox_of"]

log = logging.getLogger(__name__)

_SERVICE = pb.DESCRIPTOR.services_by_name["SandboxService"]
_LOCAL = {"Create", "Get", "List", "ListSnapshots", "Watch"}
"""Answered by any replica, from the shared store."""
_SANDBOX = "sb-"
"""How every sandbox's id begins; those of sessions and processes begin with their sandbox's id and a slash."""
_NAMES = ("sandbox_id", "id", "session_id", "process_id")

Context = Any  # grpc.aio.ServicerContext is generic only in the stubs
Handler = Any
Details = Any


def sandbox_of(message: Message) -> str:
    """Return the sandbox that the first message of a call is about, or "" for none."""
    inner = getattr(message, "start", None)
    for part in (message, inner) if isinstance(inner, Message) else (message,):
        for name in _NAMES:
            value = getattr(part, name, "")
            if isinstance(value, str) and value.startswith(_SANDBOX):
                return value.partition("/")[0]
    return ""


class ForwardInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc is not typed
    """Answers here what belongs here, and passes on the rest. Close it when the server has stopped."""

    def __init__(self, replica: Replica, secret: bytes) -> None:
        self._replica = replica
        self._passes = Passes(secret)
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def close(self) -> None:
        """Close the connections to other replicas."""
        for channel in self._channels.values():
            await channel.close()

    async def intercept_service(
        self, continuation: Callable[[Details], Awaitable[Handler]], handler_call_details: Details
    ) -> Handler:
        """Return the method's handler, with the way to other replicas before it."""
        path = handler_call_details.method
        service, _, name = path.strip("/").rpartition("/")
        handler = await continuation(handler_call_details)
        method = _SERVICE.methods_by_name.get(name) if service == _SERVICE.full_name else None
        if handler is None or method is None or name in _LOCAL:
            return handler
        came = any(key == HEADER for key, _ in handler_call_details.invocation_metadata or ())
        return _Call(self, handler, path, GetMessageClass(method.input_type), may_forward=not came).wrapped()

    def check(self, passes: list[str | bytes], method: str) -> Admitted:
        """Return whom another replica admitted. Raise `Unauthenticated`."""
        if len(passes) > 1 or method.strip("/").rpartition("/")[0] != _SERVICE.full_name:
            raise Unauthenticated(f"{HEADER} is for servers that share this one's store. Leave it out.")
        return self._passes.check(passes[0], to=self._replica.id, method=method)

    async def destination(self, sandbox_id: str) -> tuple[Member, grpc.aio.Channel] | None:
        """Return the replica that has the sandbox and a channel that is connected to it; None: it is here.

        One of this node that cannot be reached is waited for until its lease ends, since this replica takes over from
        it then. Raise `Unavailable` for one that goes on all the same, and soon for one elsewhere.
        """
        while True:
            member = await self._replica.route(sandbox_id, current_tenant())
            if member is None:
                return None
            channel = self._channel(member.address)
            connecting = asyncio.ensure_future(self._connected(channel, member))
            gone = asyncio.ensure_future(self.departed(member))
            near = member.node == self._replica.node
            patience_s = max(member.expires_in_s, 0.0) + UNREACHABLE_S if near else UNREACHABLE_S
            try:
                await asyncio.wait(
                    (connecting, gone), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED
                )
                if connecting.done():
                    await connecting
                    return member, channel
                if not gone.done():
                    raise not_reached(member)
            finally:
                connecting.cancel()
                gone.cancel()

    async def departed(self, member: Member) -> None:
        """Wait until a replica is no member any more."""
        await self._replica.departed(member)

    async def here(self, sandbox_id: str) -> None:
        """Wait until the sandbox, which another replica sent a caller for, is here or known not to be."""
        await self._replica.route(sandbox_id, current_tenant())

    def metadata(self, context: Context, member: Member, path: str) -> list[tuple[str, str | bytes]]:
        """Return what goes with a forwarded call: what came with it, and a pass in place of its token."""
        kept = [
            (key, value)
            for key, value in context.invocation_metadata() or ()
            if key not in ("authorization", "user-agent", HEADER) and not key.startswith(("grpc-", ":"))
        ]
        caller = Admitted(current_tenant(), current_limit())
        signed = self._passes.sign(to=member.id, method=path, caller=caller)
        return [*kept, (HEADER, signed)]

    async def _connected(self, channel: grpc.aio.Channel, member: Member) -> None:
        """Wait until there is a connection; nothing was sent before."""
        suspected = False
        while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                raise not_reached(member)
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and not suspected:
                suspected = True
                await self._replica.suspected(member)
            await channel.wait_for_state_change(state)

    def _channel(self, address: str) -> grpc.aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = grpc.aio.insecure_channel(
                target(address), options=CLIENT_OPTIONS
            )
        return channel


class _Call:
    """One method's handler with forwarding before it; it takes and gives raw messages."""

    def __init__(
        self,
        interceptor: ForwardInterceptor,
        inner: Handler,
        path: str,
        request_type: type[Message],
        *,
        may_forward: bool,
    ) -> None:
        self._interceptor = interceptor
        self._inner = inner
        self._path = path
        self._request_type = request_type
        self._may_forward = may_forward
        self._streamed = bool(inner.response_streaming)

    def wrapped(self) -> Handler:
        shapes = {
            (False, False): grpc.unary_unary_rpc_method_handler,
            (False, True): grpc.unary_stream_rpc_method_handler,
            (True, False): grpc.stream_unary_rpc_method_handler,
            (True, True): grpc.stream_stream_rpc_method_handler,
        }
        serialize = self._inner.response_serializer

        def serialized(message: Any) -> bytes:
            return message if isinstance(message, bytes) or serialize is None else bytes(serialize(message))

        shape = shapes[bool(self._inner.request_streaming), self._streamed]
        return shape(self._handle, response_serializer=serialized)

    async def _handle(self, request: Any, context: Context) -> Any:
        try:
            rest: AsyncIterator[bytes] | None = None
            first: bytes | None = request
            if self._inner.request_streaming:
                rest = aiter(request)
                first = await anext(rest, None)
            sandbox_id = "" if first is None else sandbox_of(self._parsed(first))
            where = None
            if sandbox_id:
                add_log_ids(sandbox_id=sandbox_id)
            if sandbox_id and self._may_forward:
                where = await self._interceptor.destination(sandbox_id)
            elif sandbox_id:
                await self._interceptor.here(sandbox_id)
            if where is not None and first is not None:
                return await self._forward(*where, first, rest, context)
        except RockError as error:
            return await fail(context, error)
        return await self._locally(first, rest, context)

    def _parsed(self, raw: bytes) -> Message:
        check_counts(raw, self._request_type.DESCRIPTOR)
        try:
            return self._request_type.FromString(raw)
        except DecodeError as error:
            raise InvalidArgument(f"the request is no {self._request_type.DESCRIPTOR.name}") from error

    async def _locally(self, first: bytes | None, rest: AsyncIterator[bytes] | None, context: Context) -> Any:
        inner = self._inner
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

    async def _forward(
        self,
        member: Member,
        channel: grpc.aio.Channel,
        first: bytes,
        rest: AsyncIterator[bytes] | None,
        context: Context,
    ) -> Any:
        # On the wire a stream fits every shape of call.
        call = channel.stream_stream(self._path)(
            timeout=context.time_remaining(),
            metadata=self._interceptor.metadata(context, member, self._path),
        )
        pump = asyncio.ensure_future(_pump(call, first, rest))
        gone = asyncio.ensure_future(self._interceptor.departed(member))
        gone.add_done_callback(lambda _: call.cancel())  # it may hang without hanging up
        reply: bytes | None = None
        try:
            async for reply in call:
                if self._streamed:
                    await context.write(reply)
            await _finish(context, call)
        except grpc.aio.AioRpcError as failure:
            await _fail_like(context, failure, member)
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


async def _fail_like(context: Context, failure: grpc.aio.AioRpcError, member: Member) -> None:
    """Let the caller see what the other replica answered."""
    trailing = _ours(failure.trailing_metadata())
    lost = failure.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
    if lost and not any(key == "rock-error-code" for key, _ in trailing):
        await fail(context, _went_away(member))
    await context.abort(failure.code(), failure.details() or "", trailing_metadata=trailing)


def _went_away(member: Member) -> Unavailable:
    return Unavailable(
        f"replica {member.id}, which had the sandbox, went away during the call: its outcome is unknown. Ask again with "
        "the same idempotency key; another replica takes the sandbox over.",
        retry_after_s=1.0,
    )


def _ours(metadata: Any) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in metadata or () if key.startswith("rock-"))
