"""The env host: a worker process that runs many environments for the service, one call at a time.

Started by `rock_env.env_workers.pool` as `python -m rock_env.env_workers.host --fd N --parent PID [--env REF]…`; it
reads frames from the socket `N` until that closes and never outlives its parent. A hung item is interrupted by a
timer signal; if that cannot help, the service kills the process.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any, TypeVar

from rock_env.env_workers.catalog import Catalog
from rock_env.env_workers.frames import MOST_BYTES, Frame, Kind, WorkerFrameReader, pack
from rock_env.env_workers.hosted import HostedEnv
from rock_env.errors import DeadlineExceeded, NotFound, ResourceExhausted, as_rock_error
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1 import host_pb2 as host
from rock_env.wire.envs import fill_error

__all__ = ["PR_SET_PDEATHSIG", "ById", "EnvHost", "inherited", "main"]

log = logging.getLogger(__name__)

CHUNK_ITEMS = 256
"""Items per reply frame: large enough that a frame's own cost (about 50 µs) vanishes."""
FLUSH_S = 0.01
"""Finished items wait at most this long for their chunk to fill."""
PR_SET_PDEATHSIG = 1  # linux/prctl.h


Hosted = TypeVar("Hosted")


class ById(dict[str, Hosted]):
    """A worker's environments. Subscription raises `NotFound` for one that it does not have."""

    def __missing__(self, env_id: str) -> Hosted:
        raise NotFound(f"environment {env_id} is not on this worker (any more). Make it again.")


class _Hung(BaseException):
    """Raised by the timer signal inside an item that ran too long; not an Exception, so no plugin swallows it."""


class EnvHost:
    """The environments of one process and the loop that serves them."""

    def __init__(
        self,
        connection: socket.socket,
        catalog: Catalog,
        before_action: Callable[[], None] | None = None,
    ) -> None:
        """`before_action` is called before each action is played."""
        self._connection = connection
        self._catalog = catalog
        self._before_action = before_action
        self._envs: ById[HostedEnv] = ById()
        self._timeout_s = inf
        self._tick_s = 0.0
        self._started = inf  # when the running item began; inf between items, so the signal then does nothing
        self._many: dict[int, tuple[Any, Any, Any, Callable[[Any], Any]]] = {
            Kind.MAKE: (host.HostMakeRequest, host.HostMakeResponse, pb.MakeResponse, self._make),
            Kind.RESET: (pb.ResetManyRequest, pb.ResetManyResponse, pb.ResetResponse, self._reset),
            Kind.STEP: (pb.StepManyRequest, pb.StepManyResponse, pb.StepResponse, self._step),
            Kind.EVALUATE: (
                pb.EvaluateManyRequest,
                pb.EvaluateManyResponse,
                pb.EvaluateResponse,
                self._evaluate,
            ),
            Kind.CLOSE: (pb.CloseManyRequest, pb.CloseManyResponse, pb.CloseResponse, self._close),
        }
        self._single: dict[int, tuple[Any, Any, Callable[[Any], Any]]] = {
            Kind.SNAPSHOT: (host.HostSnapshotRequest, host.HostSnapshotResponse, self._snapshot),
            Kind.RESTORE: (host.HostRestoreRequest, pb.ResetResponse, self._restore),
            Kind.SPLITS: (host.HostSplitsRequest, host.HostSplitsResponse, self._splits),
        }

    def serve(self) -> None:
        """Answer frames until the service closes the socket."""
        signal.signal(signal.SIGALRM, self._on_alarm)
        reader = WorkerFrameReader()
        while data := self._connection.recv(1 << 20):
            for frame in reader.feed(data):
                self._timeout_s = frame.timeout_s
                self._arm(min(max(frame.timeout_s / 4, 0.01), 1.0))
                if frame.kind in self._many:
                    self._serve_many(frame)
                else:
                    self._serve_single(frame)
        for hosted in self._envs.values():
            hosted.close()

    def _arm(self, tick_s: float) -> None:
        """Let the timer tick at least this often; a busy host then pays no system call per frame."""
        if self._tick_s == 0.0 or tick_s < self._tick_s:
            self._tick_s = tick_s
            signal.setitimer(signal.ITIMER_REAL, tick_s, tick_s)

    def _on_alarm(self, signum: int, stack: object) -> None:
        if self._started == inf:  # idle: stop ticking until the next frame
            self._tick_s = 0.0
            signal.setitimer(signal.ITIMER_REAL, 0)
        elif monotonic() - self._started >= self._timeout_s:
            self._started = inf
            raise _Hung

    def _serve_many(self, frame: Frame) -> None:
        request_type, response_type, reply_type, act = self._many[frame.kind]
        replies: list[Any] = []
        flush_at = monotonic() + FLUSH_S
        for item in request_type.FromString(frame.payload).items:
            replies.append(self._run(act, item, reply_type))
            if len(replies) >= CHUNK_ITEMS or monotonic() > flush_at:
                self._send(frame, response_type(items=replies), len(replies))
                replies = []
                flush_at = monotonic() + FLUSH_S
        if replies:
            self._send(frame, response_type(items=replies), len(replies))

    def _serve_single(self, frame: Frame) -> None:
        request_type, reply_type, act = self._single[frame.kind]
        self._send(frame, self._run(act, request_type.FromString(frame.payload), reply_type), 1)

    def _send(self, frame: Frame, message: Any, count: int) -> None:
        payload = message.SerializeToString()
        if len(payload) > MOST_BYTES:
            if count > 1:
                for item in message.items:
                    self._send(frame, type(message)(items=[item]), 1)
                return
            payload = _too_long(message, len(payload), many=frame.kind in self._many).SerializeToString()
        reply = Frame(frame.call_id, frame.kind, count, 0.0, payload)
        self._connection.sendall(pack(reply))

    def _run(self, act: Callable[[Any], Any], item: Any, reply_type: Any) -> Any:
        """Run one item to a reply; this is the boundary where a plugin's failure becomes the item's error."""
        try:
            self._started = monotonic()
            reply = act(item)
            self._started = inf
        except Exception as error:  # noqa: BLE001 -- named boundary: env host item
            self._started = inf
            return self._failed(item, reply_type, error)
        except _Hung:
            doing = f"environment {_env_id(item)}" if _env_id(item) else f"the task list of {item.env}"
            late = DeadlineExceeded(f"{doing} ran longer than {self._timeout_s:g} s in one call.")
            return self._failed(item, reply_type, late, hung=True)
        return reply

    def _failed(self, item: Any, reply_type: Any, error: Exception, *, hung: bool = False) -> Any:
        env_id = _env_id(item)
        hosted = self._envs.get(env_id)
        name = hosted.spec.name if hosted is not None else "environment"
        if isinstance(error, MemoryError):
            error = ResourceExhausted(
                f"{name} {env_id}: its code needed more memory than a worker of this server may use "
                f"({resource.getrlimit(resource.RLIMIT_DATA)[0]} bytes). Use smaller arguments."
            )
        known = as_rock_error(error, doing=f"{type(item).__name__} of {name} {env_id}")
        if known is not error:
            log.error("plugin failed env_id=%s", env_id, exc_info=error)
        if hosted is not None and (hung or hosted.journal.unsound):
            hosted.journal.broke(known)
        return fill_error(reply_type(env_id=env_id), known)

    def _make(self, item: host.HostMakeItem) -> pb.MakeResponse:
        hosted = HostedEnv(self._catalog, item, self._before_action)
        self._envs[item.env_id] = hosted
        return pb.MakeResponse(env_id=item.env_id, version=hosted.spec.version)

    def _reset(self, item: pb.ResetRequest) -> pb.ResetResponse:
        return self._envs[item.env_id].reset(item)

    def _step(self, item: pb.StepRequest) -> pb.StepResponse:
        return self._envs[item.env_id].step(item)

    def _evaluate(self, item: pb.EvaluateRequest) -> pb.EvaluateResponse:
        return self._envs[item.env_id].evaluate(item)

    def _snapshot(self, item: host.HostSnapshotRequest) -> host.HostSnapshotResponse:
        return host.HostSnapshotResponse(env_id=item.env_id, state=self._envs[item.env_id].snapshot())

    def _splits(self, item: host.HostSplitsRequest) -> host.HostSplitsResponse:
        params = self._catalog.params(item.env, item.params_json)
        source = self._catalog.tasks(item.env, params.canonical())
        splits = [pb.TaskSplit(name=split, count=source.count(split)) for split in source.splits]
        return host.HostSplitsResponse(env_id=item.env_id, splits=splits)

    def _restore(self, item: host.HostRestoreRequest) -> pb.ResetResponse:
        return self._envs[item.request.env_id].restore(item)

    def _close(self, item: pb.CloseRequest) -> pb.CloseResponse:
        hosted = self._envs.pop(item.env_id, None)
        if hosted is not None:
            hosted.close()
        return pb.CloseResponse(env_id=item.env_id)


def _too_long(message: Any, size: int, *, many: bool) -> Any:
    """Return what is sent in place of one item's reply that the server would not take."""
    item = message.items[0] if many else message
    error = ResourceExhausted(
        f"the answer has {size} bytes, and one may have {MOST_BYTES}. Use smaller arguments."
    )
    failed = fill_error(type(item)(env_id=item.env_id), error)
    return type(message)(items=[failed]) if many else failed


def _env_id(item: Any) -> str:
    return item.request.env_id if isinstance(item, host.HostRestoreRequest) else item.env_id


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere the closed socket ends it)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the request
            raise SystemExit(1)


def inherited() -> tuple[socket.socket, Catalog]:
    """Return what the command line of a worker hands it, its limits set."""
    parser = argparse.ArgumentParser(description="Run environments for a ROCK server (internal).")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--memory-bytes", type=int, default=0)
    arguments = parser.parse_args()
    die_with_parent(arguments.parent)
    if arguments.memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (arguments.memory_bytes, arguments.memory_bytes))
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C in a terminal reaches the whole group; the server decides
    return socket.socket(fileno=arguments.fd), Catalog(arguments.env)


def main() -> None:
    """Serve the inherited socket."""
    connection, catalog = inherited()
    with connection:
        EnvHost(connection, catalog).serve()


if __name__ == "__main__":
    main()
