"""The guard at the door of a server with tokens: who may call what, checked before a request is even read.

Installed by `server/app.py` as the only interceptor, and only where tokens are used: the unix socket of an embedded
server lies in a folder of mode 0700, so whoever can reach it could as well kill the server. It sets the tenant that
the services see (`rock_env.auth.current_tenant`); what a tenant may see is theirs to decide. A call is checked when
it starts: a stream that runs already outlives the revocation of its token.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from rock_env.auth import Caller, Scope, act_for, authenticate
from rock_env.errors import RockError
from rock_env.server.grpc import fail
from rock_env.token_file import TokenFile

__all__ = ["SCOPES", "AccessInterceptor"]

log = logging.getLogger(__name__)

OPEN = "grpc.health.v1.Health"
"""The one service anybody may call: probes have no token, and it says no more than that the server is up."""
SCOPES = {"rock.v1.EnvService": Scope.ENV, "rock.v1.SandboxService": Scope.SANDBOX}
"""What a service's calls need; every other one, such as reflection and the AdminService, needs `admin`."""

Handler = Any  # grpc.RpcMethodHandler is generic only in the stubs
Details = Any


class AccessInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc is not typed
    """Admits a call whose `authorization: Bearer` token is valid and holds the scope of the service."""

    def __init__(self, tokens: TokenFile) -> None:
        self._tokens = tokens

    async def intercept_service(
        self, continuation: Callable[[Details], Awaitable[Handler]], handler_call_details: Details
    ) -> Handler:
        """Return the method's handler, or one that answers UNAUTHENTICATED or PERMISSION_DENIED."""
        method = handler_call_details.method
        service = method.strip("/").rpartition("/")[0]
        if service != OPEN:
            try:
                act_for(self._caller(handler_call_details, service).tenant)
            except RockError as error:
                return _refusal(method, error)
        return await continuation(handler_call_details)

    def _caller(self, details: Details, service: str) -> Caller:
        headers = [value for name, value in details.invocation_metadata or () if name == "authorization"]
        caller = authenticate(headers, self._tokens.tokens())
        caller.need(SCOPES.get(service, Scope.ADMIN))
        return caller


def _refusal(method: str, error: RockError) -> Handler:
    async def refuse(_: Any, context: Any) -> None:
        log.info("call refused method=%s peer=%s code=%s cause=%s", method, context.peer(), error.code, error)
        await fail(context, error)

    # On the wire a stream fits every shape of call, and this one never waits for a message, nor keeps one of a
    # stranger's. A client that writes on meanwhile may see its write fail before it sees this answer.
    return grpc.stream_stream_rpc_method_handler(refuse)
