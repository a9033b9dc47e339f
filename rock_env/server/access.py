"""The guard at the door: who may call what, checked before a request is even read.

Installed by `server/app.py` on every server. One without API tokens asks nobody for them: whoever can reach the unix
socket of an embedded server, in a folder of mode 0700, could as well kill it. But a sandbox's own token counts there,
too, for the URL of a port holds one and gets about. It sets the tenant that the services see
(`rock_env.auth.current_tenant`); what a tenant may see is theirs to decide. A call is checked when it starts: a stream
that runs already outlives the revocation of its token.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from rock_env.auth import Scope, act_for, authenticate, vouched
from rock_env.errors import PermissionDenied, RockError, Unauthenticated
from rock_env.lifecycle import SandboxRecord, SandboxState
from rock_env.sandbox_tokens import Limit, limit_to, parse, recognise
from rock_env.server.grpc import fail
from rock_env.token_file import TokenFile

__all__ = ["INSIDE", "SCOPES", "AccessInterceptor", "refusal"]

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
INSIDE = frozenset(
    {
        *("Exec", "OpenSession", "Session", "CloseSession", "StartProcess", "ProcessLogs", "SignalProcess"),
        "ListProcesses",
        *("ReadFile", "WriteFile", "Upload", "Download", "ListFiles", "Stat", "WatchFiles", "Expose", "Dial"),
    }
)
"""The calls of the SandboxService that a sandbox's own token may make, each for that sandbox alone."""
_OVER = frozenset({SandboxState.DELETING, SandboxState.DELETED})

Handler = Any  # grpc.RpcMethodHandler is generic only in the stubs
Details = Any


class AccessInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc is not typed
    """Admits a call whose `authorization: Bearer` token is valid and holds the scope of the service."""

    def __init__(
        self, tokens: TokenFile | None, sandboxes: Callable[[str], Awaitable[SandboxRecord | None]]
    ) -> None:
        """Take the API tokens, if callers need one, and who knows the record of a sandbox, of whatever tenant."""
        self._tokens = tokens
        self._sandboxes = sandboxes

    async def intercept_service(
        self, continuation: Callable[[Details], Awaitable[Handler]], handler_call_details: Details
    ) -> Handler:
        """Return the method's handler, or one that answers UNAUTHENTICATED or PERMISSION_DENIED."""
        method = handler_call_details.method
        service = method.strip("/").rpartition("/")[0]
        if service != OPEN and not vouched():
            try:
                await self._admit(handler_call_details, service)
            except RockError as error:
                return refusal(method, error)
        return await continuation(handler_call_details)

    async def _admit(self, details: Details, service: str) -> None:
        headers = [value for name, value in details.invocation_metadata or () if name == "authorization"]
        inside = parse(headers)
        if inside is not None:
            record = await self._sandboxes(inside[0])
            limit = self._limit(record, inside[1])
            _check_inside(details.method, limit)
            assert record is not None  # a limit was made of it
            act_for(record.tenant)
            limit_to(limit)
            return
        if self._tokens is None:
            return
        caller = authenticate(headers, self._tokens.tokens())
        caller.need(SCOPES.get(service, Scope.ADMIN))
        act_for(caller.tenant)
        limit_to(None)

    @staticmethod
    def _limit(record: SandboxRecord | None, secret: str) -> Limit:
        token = recognise(secret, record.tokens if record else ())
        if record is None or token is None or record.state in _OVER:
            raise Unauthenticated(
                "this sandbox token is not valid: its sandbox is gone, it was replaced by newer ones, or its secret is "
                "wrong. Ask for a new one with IssueToken."
            )
        return Limit(record.id, token.port)


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


def refusal(method: str, error: RockError) -> Handler:
    """Return a handler that answers any call with the error."""

    async def refuse(_: Any, context: Any) -> None:
        log.info("call refused method=%s peer=%s code=%s cause=%s", method, context.peer(), error.code, error)
        await fail(context, error)

    # On the wire a stream fits every shape of call, and this one keeps no message of a stranger's.
    return grpc.stream_stream_rpc_method_handler(refuse)
