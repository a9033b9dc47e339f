"""The guard at the door: who may call what, known from a call's headers alone, before anything of its body is read.

Installed by `server/app.py` on every server, before what parses or forwards a call, and asked by the REST face before
it reads a body. A server without API tokens asks nobody for them: whoever can reach the unix socket of an embedded
server, in a folder of mode 0700, could as well kill it. But a sandbox's own token counts there, too, for the URL of a
port holds one and gets about. It sets the tenant that the services see (`rock_env.security.auth.current_tenant`);
what a tenant may see is theirs to decide. `server/interceptors/revocation` ends the streams whose token does not hold
any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import grpc

from rock_env.errors import PermissionDenied, RockError, Unauthenticated
from rock_env.lifecycle import SandboxRecord, SandboxState
from rock_env.security.auth import Scope, act_for, authenticate
from rock_env.security.sandbox_tokens import Limit, limit_to, parse, recognise
from rock_env.security.token_file import TokenFile
from rock_env.server.calls import fail
from rock_env.server.interceptors.revocation import ApiHolder, BoxHolder, Holder, Revocation
from rock_env.server.replicas.trust.passes import HEADER, Admitted
from rock_env.wire.rest_routes import ROUTES

__all__ = ["INSIDE", "OPEN", "SCOPES", "AccessControl", "AccessInterceptor", "Permit"]

log = logging.getLogger(__name__)

OPEN = "grpc.health.v1.Health"
"""The one service anybody may call: probes have no token, and it says no more than that the server is up."""
SCOPES = {
    "rock.v1.EnvService": Scope.ENV,
    "rock.v1.SandboxService": Scope.SANDBOX,
    "rock.v1.RegistryService": Scope.SANDBOX,
}
"""What a service's calls need; every other one, such as reflection and the AdminService, needs `admin`."""

_SANDBOXES = "rock.v1.SandboxService"
INSIDE = frozenset(name.removeprefix("SandboxService.") for name, route in ROUTES.items() if route.inside)
"""The calls of the SandboxService that a sandbox's own token may make, each for that sandbox alone."""
_OVER = frozenset({SandboxState.DELETING, SandboxState.DELETED})
_DRAIN_S = 0.5
"""How long one refused call at a time may go on sending, so that its client reports our answer and not a failed write.

One at a time: what strangers make the server hold is one message, however many of them there are."""

Handler = Any  # grpc.RpcMethodHandler is generic only in the stubs
Details = Any


class Peers(Protocol):
    """Who knows the passes of the replicas that share this server's store."""

    def check(self, passes: list[str | bytes], method: str) -> Admitted:
        """Return whom another replica admitted. Raise `Unauthenticated`."""
        ...


@dataclass(frozen=True, slots=True)
class Permit:
    """For whom a call may be made."""

    tenant: str
    limit: Limit | None = None
    """What alone it may touch; None: all that is its tenant's."""
    holder: Holder | None = None
    """The token that was shown; None where none was needed."""


class AccessControl:
    """Decides about each call; the same for every way into a server."""

    def __init__(
        self,
        tokens: TokenFile | None,
        sandboxes: Callable[[str], Awaitable[SandboxRecord | None]],
        peers: Peers | None = None,
    ) -> None:
        """Take the API tokens, if callers need one, and who knows the record of a sandbox, of whatever tenant."""
        self._tokens = tokens
        self._sandboxes = sandboxes
        self._peers = peers

    @property
    def guarded(self) -> bool:
        """Return whether callers need an API token."""
        return self._tokens is not None

    async def admit(self, method: str, metadata: Iterable[tuple[str, Any]]) -> Permit:
        """Return for whom the call `/service/Method` with this metadata is. Raise `Unauthenticated`, `PermissionDenied`."""
        service = method.strip("/").rpartition("/")[0]
        if service == OPEN:
            return Permit("")
        metadata = tuple(metadata)
        passes = [value for name, value in metadata if name == HEADER]
        if passes and self._peers is not None:
            return self._of_replica(self._peers.check(passes, method))
        headers = [value for name, value in metadata if name == "authorization"]
        inside = parse(headers)
        if inside is not None:
            return self._of_sandbox(await self._sandboxes(inside[0]), inside[1], method)
        if self._tokens is None:
            return Permit("")
        tokens = self._tokens.tokens()
        caller = authenticate(headers, tokens)
        scope = SCOPES.get(service, Scope.ADMIN)
        caller.need(scope)
        holder = ApiHolder(caller.token_id, tokens[caller.token_id].secret_sha256, scope)
        return Permit(caller.tenant, holder=holder)

    def _of_replica(self, caller: Admitted) -> Permit:
        if self.guarded and not caller.tenant:
            raise Unauthenticated(
                "another replica forwarded this call for nobody, and this one needs a token. Start all servers that "
                "share a store with --tokens."
            )
        return Permit(caller.tenant, caller.limit)

    def _of_sandbox(self, record: SandboxRecord | None, secret: str, method: str) -> Permit:
        token = recognise(secret, record.tokens if record else ())
        nobodys = self.guarded and record is not None and not record.tenant
        if record is None or token is None or record.state in _OVER or nobodys:
            raise Unauthenticated(
                "this sandbox token is not valid: its sandbox is gone, it was replaced by newer ones, or its secret is "
                "wrong. Ask for a new one with IssueToken."
            )
        limit = Limit(record.id, token.port)
        _check_inside(method, limit)
        return Permit(record.tenant, limit, BoxHolder(record.id, token.secret_sha256))


class AccessInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc is not typed
    """Lets in whom the door admits, and answers everybody else without reading what they send."""

    def __init__(self, door: AccessControl, revocation: Revocation) -> None:
        self._door = door
        self._revocation = revocation
        self._draining = False

    async def intercept_service(
        self, continuation: Callable[[Details], Awaitable[Handler]], handler_call_details: Details
    ) -> Handler:
        """Return the method's handler, or one that answers UNAUTHENTICATED or PERMISSION_DENIED."""
        method = handler_call_details.method
        try:
            admitted = await self._door.admit(method, handler_call_details.invocation_metadata or ())
        except RockError as error:
            return self._refusal(method, error)
        # The task is the call's own, so nothing of this needs to be taken back.
        act_for(admitted.tenant)
        limit_to(admitted.limit)
        handler = await continuation(handler_call_details)
        if handler is not None and (handler.request_streaming or handler.response_streaming):
            self._revocation.note(admitted.holder, asyncio.current_task())
        return handler

    def _refusal(self, method: str, error: RockError) -> Handler:
        """Return a handler that answers any call with the error."""

        async def refuse(_: Any, context: Any) -> None:
            log.info(
                "call refused method=%s peer=%s code=%s cause=%s", method, context.peer(), error.code, error
            )
            if self._draining:
                await fail(context, error, drain_s=0)
            self._draining = True
            try:
                await fail(context, error, drain_s=_DRAIN_S)
            finally:
                self._draining = False

        # On the wire a stream fits every shape of call, and this one turns no bytes of a stranger's into a message.
        return grpc.stream_stream_rpc_method_handler(refuse)


def _check_inside(method: str, limit: Limit) -> None:
    service, _, name = method.strip("/").rpartition("/")
    if service != _SANDBOXES or name not in INSIDE:
        raise PermissionDenied(
            f"the token of sandbox {limit.sandbox_id} is for what happens inside it; {name} needs an API token."
        )
    if limit.port and name != "Dial":
        raise PermissionDenied(
            f"this token is for port {limit.port} of its sandbox alone; {name} needs another."
        )
