"""Carries a call to the replica that has its sandbox or environment, byte for byte, so that clients may call any of them.

Installed by `server/app.py` behind the guard at the door of a server that shares its store, so what comes here was
admitted. Which sandbox a call is about stands in its first message; nothing else of it is read. `episodes` does the same
for environments, `image_calls` for images. The other replica is
told by a signed pass for which tenant it acts; a client's token goes no further than the replica it was shown to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from rock_env.errors import Unauthenticated, Unavailable
from rock_env.proto.v1 import env_pb2, registry_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.security.auth import current_tenant
from rock_env.security.sandbox_tokens import current_limit
from rock_env.server.replicas.carrying import ForwardedCall
from rock_env.server.replicas.episodes import episode_call
from rock_env.server.replicas.image_calls import image_call
from rock_env.server.replicas.member import UNREACHABLE_S, Replica
from rock_env.server.replicas.seats import not_reached
from rock_env.server.replicas.trust.certificates import Identity
from rock_env.server.replicas.trust.passes import HEADER, PEERS, Admitted, Passes
from rock_env.spec import SandboxSpec
from rock_env.store.postgres.members import Member
from rock_env.telemetry.logs import add_log_ids
from rock_env.wire.channel import CLIENT_OPTIONS, is_tls, target
from rock_env.wire.sandboxes import sandbox_spec

__all__ = ["ForwardInterceptor", "sandbox_of"]

_SERVICE = pb.DESCRIPTOR.services_by_name["SandboxService"]
_ENVIRONMENTS = env_pb2.DESCRIPTOR.services_by_name["EnvService"]
_REGISTRY = registry_pb2.DESCRIPTOR.services_by_name["RegistryService"]
_SERVICES = {each.full_name: each for each in (_SERVICE, _ENVIRONMENTS, _REGISTRY)}
_LOCAL = {"Get", "List", "ListSnapshots", "Watch"}
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

    def __init__(self, replica: Replica, secret: bytes, own: Identity | None = None) -> None:
        """`own` is who this replica is to those over a network; None: it can reach none of them."""
        self._replica = replica
        self._own = own
        self._passes = Passes(secret)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self.images_node: Callable[[str, SandboxSpec], Awaitable[str]] | None = None
        """Tells which other node has the image of a tenant's new sandbox, "" for none; set by `Node`."""

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
        if handler is None:
            return None
        came = any(key == HEADER for key, _ in handler_call_details.invocation_metadata or ())
        found = _SERVICES.get(service)
        method = None if found is None else found.methods_by_name.get(name)
        if method is None:
            return handler
        kind: type[ForwardedCall] | None
        if name == "TakeOver":
            kind = _SandboxCall
        elif found is _ENVIRONMENTS:
            kind = None if came else episode_call(name)
        elif found is _REGISTRY or name in ("Create", "CreateMany"):
            kind = None if came else image_call(name)
        else:
            kind = None if name in _LOCAL else _SandboxCall
        if kind is None:
            return handler
        request_type = GetMessageClass(method.input_type)
        return kind(self, handler, path, request_type, may_forward=not came).wrapped()

    def check(self, passes: list[str | bytes], method: str) -> Admitted:
        """Return whom another replica admitted. Raise `Unauthenticated`."""
        service = method.strip("/").rpartition("/")[0]
        if len(passes) > 1 or service not in (*_SERVICES, PEERS):
            raise Unauthenticated(f"{HEADER} is for servers that share this one's store. Leave it out.")
        return self._passes.check(passes[0], to=self._replica.id, method=method)

    async def destination(self, sandbox_id: str) -> tuple[Member, grpc.aio.Channel] | None:
        """Return the replica that has the sandbox and a channel that is connected to it; None: it is here.

        One that cannot be reached is waited for until its lease ends, if this replica takes the sandbox up then. Raise
        `Unavailable` for one that goes on all the same, and soon for a sandbox that it cannot take up.
        """
        while True:
            found = await self._replica.route(sandbox_id, current_tenant())
            if found is None:
                return None
            member, takes_over = found
            patience_s = self._replica.members.buried_in_s(member) if takes_over else 0.0
            channel = await self.reach(member, patience_s)
            if channel is not None:
                return member, channel

    async def reach(self, member: Member, patience_s: float = 0.0) -> grpc.aio.Channel | None:
        """Return a channel that is connected to a replica, or None if it ceased to be one meanwhile.

        Raise `Unavailable` for one that neither answers nor is gone after `UNREACHABLE_S` and so long.
        """
        channel = self._channel(member)
        connecting = asyncio.ensure_future(self._connected(channel, member))
        gone = asyncio.ensure_future(self.departed(member))
        try:
            await asyncio.wait(
                (connecting, gone),
                timeout=patience_s + UNREACHABLE_S,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if connecting.done():
                await connecting
                return channel
            if not gone.done():
                raise not_reached(member)
            return None
        finally:
            connecting.cancel()
            gone.cancel()

    async def image_place(self, spec: Any) -> tuple[Member, grpc.aio.Channel] | None:
        """Return a replica that has the image of a new sandbox's spec, and a channel to it; None: this one does as well.

        None also where no server of the image's node lives: this one says so. Raise what reading a spec does.
        """
        if not spec.image or self.images_node is None:
            return None
        node = await self.images_node(current_tenant(), sandbox_spec(spec))
        member = self._replica.of_node(node) if node else None
        channel = None if member is None else await self.reach(member)
        return None if member is None or channel is None else (member, channel)

    @property
    def replica(self) -> Replica:
        """Return this server as a member."""
        return self._replica

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
        return [*kept, *self.signed(member, path)]

    def signed(self, member: Member, path: str) -> list[tuple[str, str | bytes]]:
        """Return the pass for one call of a replica in the name of the present caller."""
        caller = Admitted(current_tenant(), current_limit())
        return [(HEADER, self._passes.sign(to=member.id, method=path, caller=caller))]

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

    def _channel(self, member: Member) -> grpc.aio.Channel:
        at = f"{member.environments} {member.address}"
        channel = self._channels.get(at)
        if channel is None:
            if not is_tls(member.address):
                channel = grpc.aio.insecure_channel(target(member.address), options=CLIENT_OPTIONS)
            elif self._own is None:
                raise Unavailable(
                    f"replica {member.id}, which has what the call is about, is reached over the network alone, and this "
                    "server has no --peers. Start all servers of a store with --peers, or none.",
                    retry_after_s=5.0,
                )
            else:
                channel = grpc.aio.secure_channel(
                    target(member.address),
                    self._own.client(),
                    options=[*CLIENT_OPTIONS, *self._own.options(member)],
                )
            self._channels[at] = channel
        return channel


class _SandboxCall(ForwardedCall):
    """A call of the SandboxService, and the one about environments that goes by a sandbox."""

    async def where(self, message: Message) -> tuple[Member, grpc.aio.Channel] | None:
        sandbox_id = sandbox_of(message)
        if not sandbox_id:
            return None
        add_log_ids(sandbox_id=sandbox_id)
        if self.may_forward:
            return await self.interceptor.destination(sandbox_id)
        await self.interceptor.here(sandbox_id)
        return None
