"""What a server counts and measures, in Prometheus' text format. docs/metrics-rock.md lists it all.

Told by the interceptor, the store's and the backend's observers (`server/observe.py`); read by `--metrics` and by
whatever else serves `Metrics.page`. No label holds an id, a tenant or anything else a caller chooses, so the number
of series is bounded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector

from rock_env.backends.observed import Ended
from rock_env.errors import InvalidArgument, Unavailable
from rock_env.lifecycle import DeadlineKind, SandboxRecord, SandboxState
from rock_env.wire.channel import target

__all__ = ["CONTENT_TYPE", "Metrics", "Reading", "serve_metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FAST_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_KINDS = {kind.value: kind.name.lower() for kind in DeadlineKind}
_STARTING = (SandboxState.PENDING, SandboxState.STARTING)
_REQUEST_S = 5.0
"""How long a scraper may take to ask."""
_HEAD_BYTES = 8 << 10
_MOST_CONNECTIONS = 64
"""At once; one more costs the oldest its place."""

Reading = Mapping[tuple[str, ...], float]


class _Gauge:
    """A gauge that is read when it is asked for."""

    def __init__(self, name: str, meaning: str, labels: Sequence[str], read: Callable[[], Reading]) -> None:
        self._about = (name, meaning)
        self._labels = labels
        self._read = read

    def describe(self) -> Iterable[Metric]:
        """Name it without reading it."""
        yield GaugeMetricFamily(*self._about, labels=self._labels)

    def collect(self) -> Iterable[Metric]:
        """Read it."""
        family = GaugeMetricFamily(*self._about, labels=self._labels)
        for values, number in self._read().items():
            family.add_metric(values, number)
        yield family


class Metrics:
    """All numbers of one server, in a registry of its own. Used on the server's event loop."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._states: dict[str, SandboxState] = {}
        self._rpcs = self._counter("rock_rpcs", "Calls that ended.", "method", "code")
        self._rpc_s = self._histogram("rock_rpc_seconds", "Time of unary calls.", "method")
        self._creates = self._histogram(
            "rock_sandbox_create_seconds", "From the request to RUNNING.", "backend", "pool"
        )
        self._failed = self._counter(
            "rock_sandbox_failures", "Sandboxes that did not start or died.", "backend", "stage"
        )
        self._deadlines = self._counter("rock_sandbox_deadlines", "Sandboxes a deadline ended.", "deadline")
        self._commands = self._counter("rock_commands", "Commands that ended.", "outcome")
        self._command_s = self._histogram("rock_command_seconds", "Time commands ran.")
        self._store_s = self._histogram("rock_store_seconds", "Time of the store's calls.", "operation")
        self._bytes = self._counter(
            "rock_transfer_bytes", "Message bytes of sandbox calls.", "method", "direction"
        )

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, labels, registry=self.registry)

    def _histogram(self, name: str, meaning: str, *labels: str) -> Histogram:
        return Histogram(name, meaning, labels, buckets=_FAST_S, registry=self.registry)

    def gauge(self, name: str, meaning: str, labels: Sequence[str], read: Callable[[], Reading]) -> None:
        """Add a gauge that `read` answers at each scrape: label values to number. It must be quick."""
        self.registry.register(_Gauge(name, meaning, labels, read))

    def page(self) -> bytes:
        """Return everything in Prometheus' text format, of `CONTENT_TYPE`."""
        return generate_latest(self.registry)

    # -- told

    def rpc(self, method: str) -> tuple[Callable[[str], None], Callable[[float], None]]:
        """Return what counts a call of `method` under its code, and what takes a unary one's seconds."""
        codes: dict[str, Any] = {}

        def count(code: str) -> None:
            child = codes.get(code)
            if child is None:
                child = codes[code] = self._rpcs.labels(method, code)
            child.inc()

        return count, self._rpc_s.labels(method).observe

    def transfer(self, method: str, direction: str) -> Callable[[float], None]:
        """Return what counts bytes; `direction` is "in" or "out" as the server sees it."""
        return self._bytes.labels(method, direction).inc

    def stored(self, operation: str) -> Callable[[float], None]:
        """Return what takes the seconds of one operation of the store."""
        return self._store_s.labels(operation).observe

    def command(self, end: Ended) -> None:
        """Count a command by how it ended."""
        self._commands.labels(_outcome(end)).inc()
        self._command_s.observe(end.duration_s)

    def changed(self, record: SandboxRecord) -> None:
        """Take in a record that was just stored."""
        former = self._states.get(record.id)
        if record.state is former:
            return  # a renewed lease, a later deadline
        if record.state is SandboxState.DELETED:
            self._states.pop(record.id, None)
        else:
            self._states[record.id] = record.state
        if record.state is SandboxState.RUNNING and former in _STARTING:
            pool = "hit" if getattr(record, "box_id", record.id) != record.id else "miss"
            self._creates.labels(record.backend, pool).observe(record.history[-1].at - record.created_at)
        elif record.state is SandboxState.FAILED or (former in _STARTING and _has_failed(record)):
            stage = "start" if former in _STARTING else "running"
            self._failed.labels(record.backend, stage).inc()
        elif record.state is SandboxState.DELETED and record.reason in _KINDS:
            self._deadlines.labels(_KINDS[record.reason]).inc()


def _has_failed(record: SandboxRecord) -> bool:
    """Return whether it failed at some time: a failed start is stored once, when it is DELETED already."""
    return any(change.state is SandboxState.FAILED for change in record.history)


def _outcome(end: Ended) -> str:
    if end.infra_error:
        return "infra"
    if end.timed_out:
        return "timeout"
    if getattr(end, "oom_killed", False):
        return "oom"
    if end.signal is not None:
        return "signal"
    return "ok" if end.exit_code == 0 else "exit"


async def serve_metrics(metrics: Metrics, address: str) -> asyncio.Server:
    """Answer `GET /metrics` on `HOST:PORT` (port 0: any). Raise `Unavailable` if it cannot listen."""
    plain = target(address)
    if plain.startswith("unix:"):
        raise InvalidArgument(f"bad --metrics {address!r}: expected HOST:PORT, such as 127.0.0.1:9120.")
    host, _, port = plain.rpartition(":")

    held: deque[asyncio.StreamWriter] = deque()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(held) == _MOST_CONNECTIONS:
            held.popleft().transport.abort()
        held.append(writer)
        with suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head, metrics))
                await writer.drain()
        writer.close()
        if writer in held:
            held.remove(writer)

    try:
        where = host.removeprefix("[").removesuffix("]"), int(port)
        return await asyncio.start_server(answer, *where, limit=_HEAD_BYTES)
    except OSError as error:
        raise Unavailable(f"cannot serve metrics at {address}: {error.strerror}. Is it taken?") from error


def _response(head: bytes, metrics: Metrics) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    status, body = ("404 Not Found", b"only /metrics is here\n")
    if method not in (b"GET", b"HEAD"):
        status, body = ("405 Method Not Allowed", b"only GET\n")
    elif path == b"/metrics":
        status, body = ("200 OK", metrics.page())
    about = f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return about.encode() + (b"" if method == b"HEAD" else body)
