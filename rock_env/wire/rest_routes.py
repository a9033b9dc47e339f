"""The one table of REST: which HTTP verb and path stands for which call, and what its stream looks like.

Read by the server's REST face and by the client that speaks it, so the two cannot disagree. A call of a service that
has no line here fails `tests/contract/test_rest_routes.py`. It opens nothing and converts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from rock_env.proto.v1 import admin_pb2, env_pb2, registry_pb2, sandbox_pb2

__all__ = ["FILES", "ROUTES", "Method", "Route", "methods"]

FILES = (env_pb2, sandbox_pb2, registry_pb2, admin_pb2)
"""The files whose services are offered over REST."""


@dataclass(frozen=True, slots=True)
class Route:
    """How one call is reached over HTTP."""

    verb: str
    path: str
    """A name in braces is the request's field (or a field of a field, with a dot) that the path gives."""
    required: tuple[str, ...] = ()
    """Fields of the body that a caller must give; for the documentation."""
    raw: str = ""
    """The field of bytes that a raw body consists of: what is sent (client streams) or returned (server streams)."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """Field of an event → field of the request that resumes after it: an SSE event's id, and Last-Event-ID.

    A field named `offset` counts bytes: the id is where its `data` ends."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """A body, for the documentation."""
    runs: str = field(kw_only=True)
    """Where the call does its work, for docs/security-surface.md."""
    inside: bool = False
    """A sandbox's own token may make the call, for that sandbox alone."""


_BOX = "/v1/sandboxes/{id}"
_IN_BOX = "/v1/sandboxes/{sandbox_id}"
_ENV = "/v1/environments/{env_id}"
_OFFSETS = {"stdout": "stdout_offset", "stderr": "stderr_offset"}
_STEP = {"sequence": "2", "idempotency_key": "k-2", "action": "right"}

_here = partial(Route, runs="event loop")
_record = partial(Route, runs="event loop and store")
_engine = partial(Route, runs="the backend: box processes, engine, files of its state folder")
_work = partial(Route, runs="a worker of the tenant's; box acts as it asks, in the box")
_box = partial(Route, runs="the box; the server passes bytes on", inside=True)
_registered = partial(Route, runs="a thread for callers, the folder of registered environments, store")

ROUTES: Mapping[str, Route] = {
    "EnvService.ListEnvs": _here("GET", "/v1/envs"),
    "EnvService.ListSplits": Route("GET", "/v1/envs/{env}/splits", runs="an env-host worker of the tenant's"),
    "EnvService.Make": _work(
        "POST", "/v1/environments", ("env",), example={"env": "sokoban", "idempotency_key": "k-1"}
    ),
    "EnvService.Reset": _work(
        "POST",
        f"{_ENV}/reset",
        ("sequence", "idempotency_key", "task_id"),
        example={"sequence": "1", "idempotency_key": "k-1", "task_id": "train/0", "seed": "7"},
    ),
    "EnvService.Step": _work("POST", f"{_ENV}/step", ("sequence", "idempotency_key"), example=_STEP),
    "EnvService.Evaluate": _work("POST", f"{_ENV}/evaluate", ("sequence", "idempotency_key")),
    "EnvService.Checkpoint": _work("POST", f"{_ENV}/checkpoint"),
    "EnvService.Restore": _work("POST", f"{_ENV}/restore", ("sequence", "idempotency_key", "checkpoint_id")),
    "EnvService.Fork": _work("POST", f"{_ENV}/fork", ("count",)),
    "EnvService.TakeOver": _work("POST", f"{_IN_BOX}/take-over"),
    "EnvService.Close": _work("DELETE", _ENV),
    "EnvService.ReadArtifact": Route(
        "GET",
        f"{_ENV}/artifacts/{{sha256}}",
        runs="event loop: bytes that the server holds of the caller's own episode",
    ),
    "EnvService.MakeMany": _work("POST", "/v1/batch/make", ("items",)),
    "EnvService.ResetMany": _work("POST", "/v1/batch/reset", ("items",)),
    "EnvService.StepMany": _work("POST", "/v1/batch/step", ("items",), example={"items": [_STEP]}),
    "EnvService.EvaluateMany": _work("POST", "/v1/batch/evaluate", ("items",)),
    "EnvService.CloseMany": _work("POST", "/v1/batch/close", ("items",)),
    "SandboxService.Create": _engine(
        "POST",
        "/v1/sandboxes",
        example={"spec": {"resources": {"cpus": 1}}, "lease": "600s", "labels": {"team": "a"}},
    ),
    "SandboxService.CreateMany": _engine("POST", "/v1/batch/sandboxes", ("items",)),
    "SandboxService.Get": _record("GET", _BOX),
    "SandboxService.List": _record("GET", "/v1/sandboxes"),
    "SandboxService.Watch": _record("GET", "/v1/sandbox-events", ids={"revision": "after_revision"}),
    "SandboxService.Delete": _engine("DELETE", _BOX),
    "SandboxService.Pause": _engine("POST", f"{_BOX}/pause"),
    "SandboxService.Resume": _engine("POST", f"{_BOX}/resume"),
    "SandboxService.Renew": _record("POST", f"{_BOX}/renew", ("lease",), example={"lease": "600s"}),
    "SandboxService.Snapshot": _engine("POST", f"{_BOX}/snapshots"),
    "SandboxService.Restore": _engine("POST", f"{_BOX}/restore", ("snapshot_id",)),
    "SandboxService.Fork": _engine("POST", f"{_BOX}/fork", ("count",)),
    "SandboxService.ListSnapshots": _record("GET", "/v1/snapshots"),
    "SandboxService.GetSnapshot": _record("GET", "/v1/snapshots/{id}"),
    "SandboxService.DeleteSnapshot": _engine("DELETE", "/v1/snapshots/{id}"),
    "SandboxService.Exec": _box(
        "POST",
        "/v1/sandboxes/{start.sandbox_id}/exec",
        ("start",),
        ids={name: f"start.{offset}" for name, offset in _OFFSETS.items()},
        example={"start": {"argv": ["bash", "-c", "echo hello"], "timeout": "60s"}},
    ),
    "SandboxService.OpenSession": _box("POST", f"{_IN_BOX}/sessions", example={"argv": ["bash"]}),
    "SandboxService.Session": _box("POST", "/v1/sessions/{session_id}/io"),
    "SandboxService.CloseSession": _box("DELETE", "/v1/sessions/{session_id}"),
    "SandboxService.StartProcess": _box("POST", "/v1/sandboxes/{start.sandbox_id}/processes", ("start",)),
    "SandboxService.ProcessLogs": _box("GET", "/v1/processes/{process_id}/logs", ids=_OFFSETS),
    "SandboxService.SignalProcess": _box("POST", "/v1/processes/{process_id}/signal", ("signal",)),
    "SandboxService.ListProcesses": _box("GET", f"{_IN_BOX}/processes"),
    "SandboxService.ReadFile": _box("GET", f"{_IN_BOX}/file", ("path",), raw="data"),
    "SandboxService.WriteFile": _box("PUT", f"{_IN_BOX}/file", ("path",), raw="data"),
    "SandboxService.Upload": _box("PUT", f"{_IN_BOX}/tree", ("path",), raw="tar"),
    "SandboxService.Download": _box("GET", f"{_IN_BOX}/tree", ("path",), raw="data"),
    "SandboxService.ListFiles": _box("GET", f"{_IN_BOX}/files"),
    "SandboxService.Stat": _box("GET", f"{_IN_BOX}/stat", ("path",)),
    "SandboxService.WatchFiles": _box("GET", f"{_IN_BOX}/file-events"),
    "SandboxService.Expose": _record(
        "POST", f"{_IN_BOX}/ports", ("port",), example={"port": 8000}, inside=True
    ),
    "SandboxService.Dial": _box("POST", "/v1/sandboxes/{start.sandbox_id}/dial", ("start",)),
    "SandboxService.IssueToken": _record("POST", f"{_IN_BOX}/tokens"),
    "AdminService.Capacity": _here("GET", "/v1/capacity"),
    "AdminService.Drain": _here("POST", "/v1/drain", example={"within": "30s"}),
    "AdminService.Census": _engine("POST", "/v1/census"),
    "AdminService.PutEnv": _registered("PUT", "/v1/registered", ("env", "tasks")),
    "AdminService.RemoveEnv": _registered("DELETE", "/v1/registered/{name}"),
    "AdminService.SetQuota": _record("PUT", "/v1/quotas/{tenant}", example={"limits": {"boxes": "64"}}),
    "AdminService.ListQuotas": _here("GET", "/v1/quotas"),
    "AdminService.SetPool": _record("PUT", "/v1/pools", ("spec", "size"), example={"spec": {}, "size": 8}),
    "AdminService.ListPools": _here("GET", "/v1/pools"),
    "AdminService.CollectImages": _engine("POST", "/v1/images/collect"),
    "RegistryService.Register": Route(
        "POST", "/v1/images", ("start",), raw="tar", runs="event loop, context on disk, build in the engine"
    ),
    "RegistryService.WatchBuild": _record("GET", "/v1/builds/{build_id}/events", ids={"log": "offset"}),
    "RegistryService.Get": _record("GET", "/v1/images/{name}"),
    "RegistryService.List": _record("GET", "/v1/images"),
    "RegistryService.Delete": _engine("DELETE", "/v1/images/{name}"),
    "RegistryService.Validate": Route("POST", "/v1/images/validate", ("spec",), runs="boxes made for it"),
}
"""By `Service.Method`. Add one line for a new call; docs/security-surface.md and who may call come from it."""

_WITH_SLASH = frozenset({"name", "process_id", "session_id"})
"""Ids and names that may hold a slash, such as `<sandbox>/<number>`."""
_FIELD = re.compile(r"\{([a-z_.]+)\}")


class Method:
    """One call: its route, its gRPC path and the classes of its messages."""

    def __init__(self, descriptor: MethodDescriptor, route: Route) -> None:
        service: Any = descriptor.containing_service
        self.route = route
        self.name = f"{service.name}.{descriptor.name}"
        self.service = str(service.name)
        self.grpc_path = f"/{service.full_name}/{descriptor.name}"
        self.input: Descriptor = descriptor.input_type
        self.output: Descriptor = descriptor.output_type
        self.request: Any = GetMessageClass(descriptor.input_type)
        self.reply: Any = GetMessageClass(descriptor.output_type)
        self.client_streaming = bool(descriptor.client_streaming)
        self.server_streaming = bool(descriptor.server_streaming)
        self.path_fields = tuple(_FIELD.findall(route.path))

    @property
    def starlette_path(self) -> str:
        """Return the path with names that an HTTP router takes: `start.id` is `start__id`."""

        def name(found: re.Match[str]) -> str:
            return "{" + found[1].replace(".", "__") + (":path}" if found[1] in _WITH_SLASH else "}")

        return _FIELD.sub(name, self.route.path)

    @property
    def takes_body(self) -> bool:
        """Return whether the request's fields come as JSON; else they come as query parameters."""
        raw = self.client_streaming and bool(self.route.raw)
        return not raw and (self.client_streaming or self.route.verb in ("POST", "PUT", "PATCH"))


def methods() -> Iterator[Method]:
    """Yield every call that has a route."""
    for file in FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                route = ROUTES.get(f"{service.name}.{method.name}")
                if route is not None:
                    yield Method(method, route)
