"""E2B's control plane over ours, so that the `e2b` SDKs work against a ROCK server: create, list, time out, kill.

Mounted by `mount` at /e2b. Point an SDK here with E2B_API_URL and E2B_SANDBOX_URL, both <REST URL>/e2b, and with
an API token as E2B_API_KEY. A sandbox's timeout is its lease, its metadata are its labels, and a template is an image
("base": none). What has no counterpart answers 501 and names it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import grpc
from google.protobuf.timestamp_pb2 import Timestamp
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from rock_env.errors import InvalidArgument, RockError, Unimplemented
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.server.e2b.wire import control_problem, json_body, key_of
from rock_env.server.parsing import whole_number
from rock_env.server.rest.codec import rock_error
from rock_env.server.rest.gateway import Gateway
from rock_env.server.rest.request import Gone
from rock_env.wire.rest_routes import methods

__all__ = ["ENVD_VERSION", "Boxes", "control_routes"]

ENVD_VERSION = "0.5.7"
"""Which release of E2B's daemon the calls into a box resemble: uploads as octet streams, stdin that can be closed."""
_DEFAULT_S = 300
_LIFETIME_S = 24 * 3600
"""E2B's longest timeout: so long after its Create a sandbox can be kept by SetTimeout, or longer if Create asks for it."""
_STATES = {
    pb.SANDBOX_STATE_PAUSED: "paused",
    pb.SANDBOX_STATE_STARTING: "running",
    pb.SANDBOX_STATE_RUNNING: "running",
}
_BY_NAME = {"paused": [pb.SANDBOX_STATE_PAUSED], "running": [pb.SANDBOX_STATE_RUNNING]}
_OURS = {"templateID", "timeout", "metadata", "envVars", "allow_internet_access", "secure", "autoPauseMemory"}
"""What Create takes; E2B's default of internet access is not taken for a wish: network is off unless listed."""

Act = Callable[[Request], Awaitable[Response]]
Metadata = tuple[tuple[str, str], ...]


class Boxes:
    """Calls of the SandboxService for the E2B face."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._methods = {method.name: method for method in methods()}

    def call(self, name: str) -> Any:
        """Return a call of the SandboxService."""
        return self._gateway.call(self._methods[f"SandboxService.{name}"])

    async def admit(self, name: str, metadata: Metadata) -> str:
        """Return from the headers alone for which tenant a call is. Raise `Unauthenticated`, `PermissionDenied`."""
        return await self._gateway.admit(self._methods[f"SandboxService.{name}"], metadata)


def guarded(
    act: Act, admit: Callable[[Request], Awaitable[str]], problem: Callable[[RockError], Response]
) -> Act:
    """Let in who may, before anything of a body is read, and let errors become responses."""

    async def handle(request: Request) -> Response:
        try:
            request.state.tenant = await admit(request)
            return await act(request)
        except RockError as error:
            return problem(error)
        except grpc.aio.AioRpcError as failure:
            return problem(rock_error(failure))
        except Gone:
            return Response(status_code=499)

    return handle


def control_routes(boxes: Boxes) -> list[BaseRoute]:
    """Return the routes of the control plane."""
    control = _Control(boxes)
    table: list[tuple[str, str, Act, str]] = [
        ("POST", "/v2/sandboxes", control.create, "Create"),
        ("POST", "/sandboxes", control.create, "Create"),
        ("GET", "/v2/sandboxes", control.list, "List"),
        ("GET", "/sandboxes/{id}", control.get, "Get"),
        ("DELETE", "/sandboxes/{id}", control.kill, "Delete"),
        ("POST", "/sandboxes/{id}/timeout", control.set_timeout, "Renew"),
        ("POST", "/sandboxes/{id}/pause", control.pause, "Pause"),
        ("POST", "/v2/sandboxes/{id}/connect", control.connect, "IssueToken"),
        ("POST", "/sandboxes/{id}/connect", control.connect, "IssueToken"),
    ]

    def admit(name: str) -> Callable[[Request], Awaitable[str]]:
        return lambda request: boxes.admit(name, key_of(request.headers))

    return [
        Route(path, guarded(act, admit(name), control_problem), methods=[verb])
        for verb, path, act, name in table
    ]


class _Control:
    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes

    async def create(self, request: Request) -> Response:
        wanted = await json_body(request)
        _refuse_others(wanted)
        create = pb.CreateSandboxRequest(
            labels=_texts(wanted, "metadata"),
            idempotency_key=request.headers.get("idempotency-key", ""),
            issue_token=True,
        )
        create.lease.seconds = _timeout_s(wanted)
        create.spec.lifetime.seconds = max(_LIFETIME_S, create.lease.seconds)
        template = _text(wanted, "templateID")
        create.spec.image = "" if template == "base" else template
        for name, value in _texts(wanted, "envVars").items():
            create.spec.env[name] = value
        info = await self._boxes.call("Create")(create, metadata=key_of(request.headers))
        return JSONResponse(_sandbox(info.id, template, info.token), 201)

    async def connect(self, request: Request) -> Response:
        key, sandbox_id = key_of(request.headers), request.path_params["id"]
        wanted = await json_body(request)
        info = await self._boxes.call("Get")(pb.GetSandboxRequest(id=sandbox_id), metadata=key)
        if info.state == pb.SANDBOX_STATE_PAUSED:
            await self._boxes.call("Resume")(pb.ResumeSandboxRequest(id=sandbox_id), metadata=key)
        renew = pb.RenewSandboxRequest(id=sandbox_id)
        renew.lease.seconds = _timeout_s(wanted)
        await self._boxes.call("Renew")(renew, metadata=key)
        issue = pb.IssueSandboxTokenRequest(sandbox_id=sandbox_id)
        token = (await self._boxes.call("IssueToken")(issue, metadata=key)).token
        return JSONResponse(_sandbox(sandbox_id, "base", token))

    async def list(self, request: Request) -> Response:
        asked = request.query_params
        states = [name for part in asked.getlist("state") for name in part.split(",")] or list(_BY_NAME)
        for name in states:
            if name not in _BY_NAME:
                raise InvalidArgument(f"unknown state {name!r}. Known: {', '.join(_BY_NAME)}")
        query = pb.ListSandboxesRequest(
            labels=dict(parse_qsl(asked.get("metadata", ""))),
            states=[state for name in states for state in _BY_NAME[name]],
            page_size=_number(asked.get("limit", "100"), "limit"),
            page_token=asked.get("nextToken", ""),
        )
        found = await self._boxes.call("List")(query, metadata=key_of(request.headers))
        headers = {"x-next-token": found.next_page_token} if found.next_page_token else {}
        return JSONResponse([_detail(info) for info in found.sandboxes], headers=headers)

    async def get(self, request: Request) -> Response:
        info = await self._boxes.call("Get")(
            pb.GetSandboxRequest(id=request.path_params["id"]), metadata=key_of(request.headers)
        )
        if info.state not in _STATES:
            return JSONResponse({"code": 404, "message": f"sandbox {info.id!r} was not found"}, 404)
        return JSONResponse(_detail(info))

    async def kill(self, request: Request) -> Response:
        key, sandbox_id = key_of(request.headers), request.path_params["id"]
        info = await self._boxes.call("Get")(pb.GetSandboxRequest(id=sandbox_id), metadata=key)
        if info.state == pb.SANDBOX_STATE_DELETED:
            return JSONResponse({"code": 404, "message": f"sandbox {sandbox_id!r} was not found"}, 404)
        await self._boxes.call("Delete")(pb.DeleteSandboxRequest(id=sandbox_id), metadata=key)
        return Response(status_code=204)

    async def set_timeout(self, request: Request) -> Response:
        renew = pb.RenewSandboxRequest(id=request.path_params["id"])
        renew.lease.seconds = _timeout_s(await json_body(request))
        await self._boxes.call("Renew")(renew, metadata=key_of(request.headers))
        return Response(status_code=204)

    async def pause(self, request: Request) -> Response:
        wanted = await json_body(request)
        if wanted.get("memory") is False:
            raise Unimplemented(
                "pause without memory is not offered here; take a snapshot over ROCK's own API"
            )
        pause = pb.PauseSandboxRequest(id=request.path_params["id"])
        await self._boxes.call("Pause")(pause, metadata=key_of(request.headers))
        return Response(status_code=204)


def _refuse_others(wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        if name == "autoResume" and value == {"enabled": False}:
            continue
        if name not in _OURS and value:
            raise Unimplemented(f"E2B's {name} has no counterpart on a ROCK server; leave it out")


def _sandbox(sandbox_id: str, template: str, token: str) -> dict[str, Any]:
    return {
        "sandboxID": sandbox_id,
        "templateID": template,
        "clientID": "rock",
        "envdVersion": ENVD_VERSION,
        "envdAccessToken": token,
    }


def _detail(info: pb.SandboxInfo) -> dict[str, Any]:
    ends = info.expires_at
    if info.HasField("lease_expires_at"):
        ends = min(ends, info.lease_expires_at, key=Timestamp.ToNanoseconds)
    return {
        "sandboxID": info.id,
        "templateID": "base",
        "clientID": "rock",
        "envdVersion": ENVD_VERSION,
        "startedAt": info.created_at.ToJsonString(),
        "endAt": ends.ToJsonString(),
        "state": _STATES[info.state],
        "metadata": dict(info.labels),
        "cpuCount": 0,
        "memoryMB": 0,
        "diskSizeMB": 0,
    }


def _text(wanted: Mapping[str, Any], name: str) -> str:
    value = wanted.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"{name} must be a text, got {value!r}")
    return value


def _texts(wanted: Mapping[str, Any], name: str) -> dict[str, str]:
    value = wanted.get(name) or {}
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise InvalidArgument(f"{name} must map texts to texts, got {value!r}")
    return value


def _timeout_s(wanted: Mapping[str, Any]) -> int:
    value = wanted.get("timeout", _DEFAULT_S)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 10**9:
        raise InvalidArgument(f"timeout must be a number of seconds, got {value!r}")
    return value


def _number(text: str, name: str) -> int:
    return whole_number(text, name, 1, 1000)
