"""The one table of REST: which HTTP verb and path stands for which call, and what its stream looks like.

Read by the server's REST face and by the client that speaks it, so the two cannot disagree. A call of a service that
has no line here fails `tests/contract/test_rest_routes.py`. It opens nothing and converts nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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


_BOX = "/v1/sandboxes/{id}"
_IN_BOX = "/v1/sandboxes/{sandbox_id}"
_ENV = "/v1/environments/{env_id}"
_OFFSETS = {"stdout": "stdout_offset", "stderr": "stderr_offset"}
_STEP = {"sequence": "2", "idempotency_key": "k-2", "action": "right"}

ROUTES: Mapping[str, Route] = {
    "EnvService.ListEnvs": Route("GET", "/v1/envs"),
    "EnvService.ListSplits": Route("GET", "/v1/envs/{env}/splits"),
    "EnvService.Make": Route(
        "POST", "/v1/environments", ("env",), example={"env": "sokoban", "idempotency_key": "k-1"}
    ),
    "EnvService.Reset": Route(
        "POST",
        f"{_ENV}/reset",
        ("sequence", "idempotency_key", "task_id"),
        example={"sequence": "1", "idempotency_key": "k-1", "task_id": "train/0", "seed": "7"},
    ),
    "EnvService.Step": Route("POST", f"{_ENV}/step", ("sequence", "idempotency_key"), example=_STEP),
    "EnvService.Evaluate": Route("POST", f"{_ENV}/evaluate", ("sequence", "idempotency_key")),
    "EnvService.Checkpoint": Route("POST", f"{_ENV}/checkpoint"),
    "EnvService.Restore": Route("POST", f"{_ENV}/restore", ("sequence", "idempotency_key", "checkpoint_id")),
    "EnvService.Fork": Route("POST", f"{_ENV}/fork", ("count",)),
    "EnvService.TakeOver": Route("POST", f"{_IN_BOX}/take-over"),
    "EnvService.Close": Route("DELETE", _ENV),
    "EnvService.ReadArtifact": Route("GET", f"{_ENV}/artifacts/{{sha256}}"),
    "EnvService.MakeMany": Route("POST", "/v1/batch/make", ("items",)),
    "EnvService.ResetMany": Route("POST", "/v1/batch/reset", ("items",)),
    "EnvService.StepMany": Route("POST", "/v1/batch/step", ("items",), example={"items": [_STEP]}),
    "EnvService.EvaluateMany": Route("POST", "/v1/batch/evaluate", ("items",)),
    "EnvService.CloseMany": Route("POST", "/v1/batch/close", ("items",)),
    "SandboxService.Create": Route(
        "POST",
        "/v1/sandboxes",
        example={"spec": {"resources": {"cpus": 1}}, "lease": "600s", "labels": {"team": "a"}},
    ),
    "SandboxService.CreateMany": Route("POST", "/v1/batch/sandboxes", ("items",)),
    "SandboxService.Get": Route("GET", _BOX),
    "SandboxService.List": Route("GET", "/v1/sandboxes"),
    "SandboxService.Watch": Route("GET", "/v1/sandbox-events", ids={"revision": "after_revision"}),
    "SandboxService.Delete": Route("DELETE", _BOX),
    "SandboxService.Pause": Route("POST", f"{_BOX}/pause"),
    "SandboxService.Resume": Route("POST", f"{_BOX}/resume"),
    "SandboxService.Renew": Route("POST", f"{_BOX}/renew", ("lease",), example={"lease": "600s"}),
    "SandboxService.Snapshot": Route("POST", f"{_BOX}/snapshots"),
    "SandboxService.Restore": Route("POST", f"{_BOX}/restore", ("snapshot_id",)),
    "SandboxService.Fork": Route("POST", f"{_BOX}/fork", ("count",)),
    "SandboxService.ListSnapshots": Route("GET", "/v1/snapshots"),
    "SandboxService.GetSnapshot": Route("GET", "/v1/snapshots/{id}"),
    "SandboxService.DeleteSnapshot": Route("DELETE", "/v1/snapshots/{id}"),
    "SandboxService.Exec": Route(
        "POST",
        "/v1/sandboxes/{start.sandbox_id}/exec",
        ("start",),
        ids={name: f"start.{offset}" for name, offset in _OFFSETS.items()},
        example={"start": {"argv": ["bash", "-c", "echo hello"], "timeout": "60s"}},
    ),
    "SandboxService.OpenSession": Route("POST", f"{_IN_BOX}/sessions", example={"argv": ["bash"]}),
    "SandboxService.Session": Route("POST", "/v1/sessions/{session_id}/io"),
    "SandboxService.CloseSession": Route("DELETE", "/v1/sessions/{session_id}"),
    "SandboxService.StartProcess": Route("POST", "/v1/sandboxes/{start.sandbox_id}/processes", ("start",)),
    "SandboxService.ProcessLogs": Route("GET", "/v1/processes/{process_id}/logs", ids=_OFFSETS),
    "SandboxService.SignalProcess": Route("POST", "/v1/processes/{process_id}/signal", ("signal",)),
    "SandboxService.ListProcesses": Route("GET", f"{_IN_BOX}/processes"),
    "SandboxService.ReadFile": Route("GET", f"{_IN_BOX}/file", ("path",), raw="data"),
    "SandboxService.WriteFile": Route("PUT", f"{_IN_BOX}/file", ("path",), raw="data"),
    "SandboxService.Upload": Route("PUT", f"{_IN_BOX}/tree", ("path",), raw="tar"),
    "SandboxService.Download": Route("GET", f"{_IN_BOX}/tree", ("path",), raw="data"),
    "SandboxService.ListFiles": Route("GET", f"{_IN_BOX}/files"),
    "SandboxService.Stat": Route("GET", f"{_IN_BOX}/stat", ("path",)),
    "SandboxService.WatchFiles": Route("GET", f"{_IN_BOX}/file-events"),
    "SandboxService.Expose": Route("POST", f"{_IN_BOX}/ports", ("port",), example={"port": 8000}),
    "SandboxService.Dial": Route("POST", "/v1/sandboxes/{start.sandbox_id}/dial", ("start",)),
    "SandboxService.IssueToken": Route("POST", f"{_IN_BOX}/tokens"),
    "AdminService.Capacity": Route("GET", "/v1/capacity"),
    "AdminService.Drain": Route("POST", "/v1/drain", example={"within": "30s"}),
    "AdminService.Census": Route("POST", "/v1/census"),
    "AdminService.PutEnv": Route("PUT", "/v1/registered", ("env", "tasks")),
    "AdminService.RemoveEnv": Route("DELETE", "/v1/registered/{name}"),
    "AdminService.SetQuota": Route("PUT", "/v1/quotas/{tenant}", example={"limits": {"boxes": "64"}}),
    "AdminService.ListQuotas": Route("GET", "/v1/quotas"),
    "AdminService.SetPool": Route("PUT", "/v1/pools", ("spec", "size"), example={"spec": {}, "size": 8}),
    "AdminService.ListPools": Route("GET", "/v1/pools"),
    "AdminService.CollectImages": Route("POST", "/v1/images/collect"),
    "RegistryService.Register": Route("POST", "/v1/images", ("start",), raw="tar"),
    "RegistryService.WatchBuild": Route("GET", "/v1/builds/{build_id}/events", ids={"log": "offset"}),
    "RegistryService.Get": Route("GET", "/v1/images/{name}"),
    "RegistryService.List": Route("GET", "/v1/images"),
    "RegistryService.Delete": Route("DELETE", "/v1/images/{name}"),
    "RegistryService.Validate": Route("POST", "/v1/images/validate", ("spec",)),
}
"""By `Service.Method`. Add one line for a new call."""

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
