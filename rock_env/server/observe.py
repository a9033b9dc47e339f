"""Where a server is looked at: each call, each change in the store, each command, without their knowing.

Put around the services, the store and the backend by `server/app.py`, by way of `Observation`. It changes no outcome:
what it wraps answers, and it takes down how long that took and how it ended.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import secrets
from collections import Counter as Tally
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any, cast

import grpc
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from rock_env.backends.base import Backend
from rock_env.backends.observed import observed
from rock_env.backends.pool import PooledBackend
from rock_env.proto.v1 import admin_pb2, env_pb2, registry_pb2, sandbox_pb2
from rock_env.server.calls import act_of, rpc_handler
from rock_env.server.capacity.admission import Admission
from rock_env.server.envs.core import EnvServiceCore
from rock_env.server.metrics import Metrics, Reading, serve_metrics
from rock_env.server.node import Node
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.store.base import SandboxStore
from rock_env.telemetry import tracing
from rock_env.telemetry.logs import add_log_ids, enter_call

__all__ = ["Observation", "ObservingInterceptor"]

_OTHER = "other"
_OK = "OK"
log = logging.getLogger(__name__)

_CODES: dict[Any, str] = {
    status: status.name for status in grpc.StatusCode if status is not grpc.StatusCode.OK
}
_BULK = ("Exec", "Session", "ProcessLogs", "ReadFile", "WriteFile", "Upload", "Download")
"""Calls whose messages carry a user's bytes."""

Handler = Any  # grpc.RpcMethodHandler is generic only in the stubs
Context = Any
Details = Any


_METHODS: dict[str, Any] = {
    f"{service.name}/{method.name}": method
    for module in (env_pb2, sandbox_pb2, registry_pb2, admin_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""Each call we know by its label; a caller cannot invent another."""


class ObservingInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc is not typed
    """Stands before the guard at the door: it sees refused calls, too. Without `metrics` it keeps to traces and log ids."""

    def __init__(self, metrics: Metrics | None) -> None:
        self._metrics = metrics
        self._labels = {
            f"/{method.containing_service.full_name}/{method.name}": label
            for label, method in _METHODS.items()
        }
        self._wrapped: dict[str, tuple[Handler, Handler]] = {}
        self._prefix = secrets.token_hex(4)
        self._calls = itertools.count(1)

    async def intercept_service(
        self, continuation: Callable[[Details], Awaitable[Handler]], handler_call_details: Details
    ) -> Handler:
        """Return the method's handler with eyes on it."""
        path = handler_call_details.method
        label = self._labels.get(path, _OTHER)
        # The task is the call's own, so nothing of this needs to be taken back.
        tracing.enter_remote(handler_call_details.invocation_metadata)
        enter_call(label, self._prefix, next(self._calls))
        handler = await continuation(handler_call_details)
        if handler is None or label == _OTHER:
            return handler
        known = self._wrapped.get(label)
        if known is None or known[0] is not handler:
            known = (handler, self._wrap(handler, path, label))
            self._wrapped[label] = known
        return known[1]

    def _wrap(self, handler: Handler, path: str, label: str) -> Handler:
        # What refuses a call takes a stream in place of the method's one request, and reads nothing of it.
        id_field = ("", "") if handler.request_streaming else _id_field(label)
        look = _Look(path.removeprefix("/"), label, self._metrics, id_field=id_field)
        serialize, deserialize = handler.response_serializer, handler.request_deserializer
        if self._metrics is not None and label.rpartition("/")[2] in _BULK:
            deserialize = _counting(deserialize, self._metrics.transfer(label, "in"), of_result=False)
            serialize = _counting(serialize, self._metrics.transfer(label, "out"), of_result=True)
        act, streams = act_of(handler), (handler.request_streaming, handler.response_streaming)
        watch = look.generator if inspect.isasyncgenfunction(act) else look.coroutine
        return rpc_handler(streams, watch(act, timed=not any(streams)), deserialize, serialize)


def _counting(
    convert: Callable[[Any], Any] | None, count: Callable[[float], None], *, of_result: bool
) -> Callable[[Any], Any]:
    def counted(message: Any) -> Any:
        converted = message if convert is None else convert(message)
        count(len(converted if of_result else message))
        return converted

    return counted


class _Look:
    """What is taken down of the calls of one method."""

    def __init__(self, name: str, label: str, metrics: Metrics | None, *, id_field: tuple[str, str]) -> None:
        self._name = name
        self._id_field = id_field
        self._count: Callable[[str], None] = _ignore
        self._time: Callable[[float], None] = _ignore
        if metrics is not None:
            self._count, self._time = metrics.rpc(label)

    def coroutine(
        self, act: Callable[[Any, Context], Awaitable[Any]], *, timed: bool
    ) -> Callable[[Any, Context], Awaitable[Any]]:
        async def look(request: Any, context: Context) -> Any:
            started = perf_counter()
            code = ""
            with tracing.span(self._name, kind=SpanKind.SERVER, errors=False) as span:
                self._note_id(request, span)
                try:
                    reply = await act(request, context)
                    code = _OK
                    return reply
                except BaseException as error:
                    code = self._ended(span, context, error)
                    raise
                finally:
                    self._tell(code, perf_counter() - started if timed else None)

        return look

    def generator(
        self, act: Callable[[Any, Context], AsyncIterator[Any]], *, timed: bool
    ) -> Callable[[Any, Context], AsyncIterator[Any]]:
        async def look(request: Any, context: Context) -> AsyncIterator[Any]:
            code = _OK
            with tracing.span(self._name, kind=SpanKind.SERVER, errors=False) as span:
                self._note_id(request, span)
                try:
                    async for reply in act(request, context):
                        yield reply
                except BaseException as error:
                    code = self._ended(span, context, error)
                    raise
                finally:
                    self._tell(code, None)

        return look

    def _note_id(self, request: Any, span: Span) -> None:
        """Name the sandbox or environment that the call is about; what a stream is about it says itself.

        A call that was refused, or whose message cannot be read, comes without a message.
        """
        field, name = self._id_field
        value = getattr(request, field, "") if field else ""
        if value and (name == "sandbox_id" or span.is_recording()):
            add_log_ids(**{name: value})
            span.set_attribute(f"rock.{name}", value)

    def _ended(self, span: Span, context: Context, error: BaseException) -> str:
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            return "CANCELLED"
        code = _code(context)
        span.set_status(Status(StatusCode.ERROR, code))
        return code

    def _tell(self, code: str, seconds: float | None) -> None:
        self._count(code)
        if seconds is not None:
            self._time(seconds)


def _id_field(label: str) -> tuple[str, str]:
    """Return the field of a unary request that holds an id, and what it is the id of."""
    method = _METHODS.get(label)
    if method is None or method.client_streaming:
        return "", ""
    fields = method.input_type.fields_by_name
    if method.containing_service.name == "SandboxService" and "id" in fields:
        return "id", "sandbox_id"
    return next(((name, name) for name in ("sandbox_id", "env_id") if name in fields), ("", ""))


def _ignore(_: Any) -> None:
    pass


def _code(context: Context) -> str:
    """Return the status a call was aborted with; gRPC answers UNKNOWN for a handler that raised."""
    return _CODES.get(context.code(), "UNKNOWN")


# -- the store


class _ObservedStore:
    """Times each operation of a store, and passes on each record that was stored."""

    def __init__(self, store: SandboxStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._store, name)
        if name.startswith("_") or not asyncio.iscoroutinefunction(act):
            return act
        took, changed = self._metrics.stored(name), self._metrics.changed

        async def timed(*args: Any, **kwargs: Any) -> Any:
            started = perf_counter()
            try:
                result = await act(*args, **kwargs)
            finally:
                took(perf_counter() - started)
            if name == "save" or (name == "add" and result.id == args[0].id):  # else its key made it before
                changed(result)
            return result

        setattr(self, name, timed)  # found at once the next time
        return timed


# -- all of it


class Observation:
    """What a server's set-up puts around its parts; `metrics` is where to serve them, or empty to count nothing."""

    def __init__(self, *, metrics: str = "") -> None:
        self._address = metrics
        self.metrics = Metrics() if metrics else None
        self.interceptors = [ObservingInterceptor(self.metrics)]

    def backend(self, backend: Backend) -> Backend:
        """Return a backend whose creates and commands are seen; pools go around it."""
        return observed(backend, self.metrics)

    def store(self, store: SandboxStore) -> SandboxStore:
        """Return a store whose operations are timed, or the same one where nobody counts."""
        return store if self.metrics is None else cast("SandboxStore", _ObservedStore(store, self.metrics))

    @asynccontextmanager
    async def serving(self, envs: EnvServiceCore, sandboxes: SandboxCore, node: Node) -> AsyncIterator[None]:
        """Show what these hold, and answer scrapes for the time of the block. Raise `Unavailable`."""
        if self.metrics is None:
            yield
            return
        _add_gauges(self.metrics, envs, sandboxes)
        _add_node_gauges(self.metrics, sandboxes, node.admission)
        listener = await serve_metrics(self.metrics, self._address)
        host, port = listener.sockets[0].getsockname()[:2]
        log.info("metrics are at http://%s:%d/metrics", host, port)
        async with listener:
            yield


def _add_gauges(metrics: Metrics, envs: EnvServiceCore, sandboxes: SandboxCore) -> None:
    held, watchers = sandboxes.ledger.held, sandboxes.ledger.watchers

    def by_state() -> Reading:
        return Tally((str(one.record.state), one.record.backend) for one in held.values())

    def load() -> Reading:
        now = envs.load()
        return {("worker",): now.envs_in_workers, ("sandbox",): now.envs_in_sandboxes}

    metrics.gauge("rock_sandboxes", "Sandboxes that are not deleted.", ("state", "backend"), by_state)
    metrics.gauge("rock_watchers", "Watch calls that listen.", (), lambda: {(): len(watchers)})
    metrics.gauge("rock_envs", "Environments that are open.", ("hosting",), load)
    metrics.gauge("rock_env_workers", "Env-host processes.", (), lambda: {(): envs.load().workers})


def _add_node_gauges(metrics: Metrics, sandboxes: SandboxCore, admission: Admission) -> None:
    def pools(*names: str) -> Reading:
        """Add up all pools of each backend: which specs they are for is their operator's to know."""
        found: dict[tuple[str, ...], float] = {}
        for backend in sandboxes.backends:
            if isinstance(backend, PooledBackend):
                for status in backend.status():
                    for name in names:
                        place = (backend.name, name)
                        found[place] = found.get(place, 0.0) + getattr(status, name)
        return found

    def used() -> Reading:
        now = admission.used
        return {("boxes",): now.boxes, ("cpus",): now.millicpus / 1000, ("memory_bytes",): now.memory_bytes}

    def waiting() -> Reading:
        return {(): admission.waiting}

    labels = ("backend", "count")
    metrics.gauge(
        "rock_pool_boxes", "Boxes of warm pools.", labels, lambda: pools("target", "ready", "starting")
    )
    metrics.gauge(
        "rock_pool_events",
        "What became of warm pools since the start.",
        labels,
        lambda: pools("hits", "misses", "lost", "failures"),
    )
    metrics.gauge("rock_admission_waiting", "Requests that wait for a place.", (), waiting)
    metrics.gauge("rock_admission_used", "What sandboxes were promised.", ("resource",), used)
