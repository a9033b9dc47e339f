"""The worker of a hosted library: it imports the library, forks a process for every episode, and passes calls on.

Started by `rock_env.env_workers.pool` as `python -m`, with a socket. It never runs code of an episode and never unpickles:
it reads the service's calls and the episodes' replies, both protobuf messages, and keeps the journals, so that an episode
which went astray decides nothing about the next. Each call has one item.
"""

from __future__ import annotations

import gc
import heapq
import logging
import selectors
import socket
from collections import deque
from itertools import count
from math import inf
from time import monotonic
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from rock_env.env_workers.catalog import Catalog
from rock_env.env_workers.episode_process import EpisodeProcess
from rock_env.env_workers.frames import Frame, Kind, WorkerFrameReader, pack
from rock_env.env_workers.host import ById, inherited
from rock_env.env_workers.journal import Journal
from rock_env.errors import (
    DeadlineExceeded,
    EnvLost,
    NotFound,
    PermissionDenied,
    RockError,
    Unimplemented,
    as_rock_error,
)
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1 import host_pb2 as host
from rock_env.wire.arrivals import raise_handles
from rock_env.wire.envs import error_of, fill_error

__all__ = ["EpisodeHost", "main"]

log = logging.getLogger(__name__)

_GRACE_S = 0.5
"""So long after its deadline an item that its own process could not interrupt ends that process."""
_LONGEST_WAIT_S = 3600.0
_MOST_EVENT_CHARS = 64


class _Messages(NamedTuple):
    request: Any
    response: Any
    reply: Any
    """The type of a response's items; None where the response is the reply."""


_MESSAGES = {
    Kind.MAKE: _Messages(host.HostMakeRequest, host.HostMakeResponse, pb.MakeResponse),
    Kind.RESET: _Messages(pb.ResetManyRequest, pb.ResetManyResponse, pb.ResetResponse),
    Kind.STEP: _Messages(pb.StepManyRequest, pb.StepManyResponse, pb.StepResponse),
    Kind.EVALUATE: _Messages(pb.EvaluateManyRequest, pb.EvaluateManyResponse, pb.EvaluateResponse),
    Kind.CLOSE: _Messages(pb.CloseManyRequest, pb.CloseManyResponse, pb.CloseResponse),
    Kind.SNAPSHOT: _Messages(host.HostSnapshotRequest, host.HostSnapshotResponse, None),
    Kind.RESTORE: _Messages(host.HostRestoreRequest, pb.ResetResponse, None),
}
_NUMBERED = (Kind.RESET, Kind.STEP, Kind.EVALUATE, Kind.RESTORE)
_BEGINS = (Kind.RESET, Kind.RESTORE)


class _Call(NamedTuple):
    number: int
    kind: Kind
    timeout_s: float
    item: Any

    @property
    def message(self) -> Any:
        """Return the part of the item that names the environment and is numbered."""
        return self.item.request if self.kind is Kind.RESTORE else self.item


class _Hosted:
    """One environment: its journal, its calls, and the process of its present episode."""

    def __init__(self, item: host.HostMakeItem) -> None:
        self.item = item
        self.journal = Journal(item.env_id)
        self.waiting: deque[_Call] = deque()
        self.running: _Call | None = None
        self.process: EpisodeProcess | None = None
        self.making = False
        """Whether the process has yet to answer to a Make that nobody but its parent asked for."""
        self.due = inf
        """When what runs must have ended."""
        self.watched = inf
        """When that is looked at next."""


class EpisodeHost:
    """The environments of one tenant and library, and the loop that serves them."""

    def __init__(self, connection: socket.socket, catalog: Catalog) -> None:
        self._connection = connection
        self._catalog = catalog
        self._warm: set[str] = set()
        self._envs: ById[_Hosted] = ById()
        self._selector = selectors.DefaultSelector()
        self._frames: deque[Frame] = deque()
        self._watch: list[tuple[float, int, _Hosted]] = []
        self._order = count()

    def serve(self) -> None:
        """Answer frames until the service closes the socket."""
        reader = WorkerFrameReader()
        self._selector.register(self._connection, selectors.EVENT_READ)
        while True:
            for key, events in self._selector.select(self._wait_s()):
                if key.data is None:
                    data = self._connection.recv(1 << 20)
                    if not data:
                        return  # the kernel ends the episodes
                    self._frames += reader.feed(data)
                elif key.data.process is not None and key.fileobj is key.data.process.connection:
                    self._on_ready(key.data, events)
            self._end_late()
            if self._frames:  # one, so that episodes are heard while others begin
                self._take(self._frames.popleft())

    def _wait_s(self) -> float:
        if self._frames:
            return 0
        return (
            min(max(self._watch[0][0] - monotonic(), 0), _LONGEST_WAIT_S) if self._watch else _LONGEST_WAIT_S
        )

    # -- calls

    def _take(self, frame: Frame) -> None:
        kind = Kind(frame.kind)
        if kind not in _MESSAGES:
            raise Unimplemented(f"a worker of a hosted library is asked for {kind.name}.")
        messages = _MESSAGES[kind]
        request = messages.request.FromString(frame.payload)
        call = _Call(
            frame.call_id, kind, frame.timeout_s, request if messages.reply is None else request.items[0]
        )
        env_id = call.message.env_id
        try:
            if kind is Kind.MAKE:
                self._import(call.item.env)
                self._envs[env_id] = _Hosted(call.item)
            elif kind is Kind.CLOSE:
                self._close(call, env_id)
                return
            hosted = self._envs[env_id]
        except RockError as error:
            self._fail(call, error)
            return
        hosted.waiting.append(call)
        self._next(hosted)

    def _import(self, env: str) -> None:
        """Import what an environment needs, so that its episodes find it done. Raise `RockError`."""
        if env in self._warm:
            return
        try:
            self._catalog.spec(env).warm()
        except Exception as error:  # named boundary: a library's own code
            raise as_rock_error(error, doing=f"importing {env}") from error
        self._warm.add(env)
        gc.collect()
        gc.freeze()  # a collection in a forked process would copy every page

    def _close(self, call: _Call, env_id: str) -> None:
        hosted = self._envs.pop(env_id, None)
        if hosted is not None:
            self._end(hosted)
            unanswered = [hosted.running, *hosted.waiting]
            hosted.running = None
            for each in unanswered:
                if each is not None:
                    self._fail(each, NotFound(f"environment {env_id} was closed meanwhile."))
        self._answer(call, pb.CloseResponse(env_id=env_id))

    def _next(self, hosted: _Hosted) -> None:
        """Begin the next call of an environment, if none runs."""
        while hosted.running is None and hosted.waiting:
            call = hosted.waiting.popleft()
            try:
                self._begin(hosted, call)
            except RockError as error:
                self._fail(call, error)
                if call.kind is Kind.MAKE:
                    self._envs.pop(hosted.item.env_id, None)

    def _begin(self, hosted: _Hosted, call: _Call) -> None:
        """Pass a call on to the episode's process, a fresh one where an episode begins. Raise `RockError`."""
        journal, message = hosted.journal, call.message
        if call.kind in _NUMBERED:
            messages = _MESSAGES[call.kind]
            reply_type = messages.reply or messages.response
            stored = journal.replay(message, reply_type)
            if stored is not None:
                self._answer(call, stored)
                return
        if call.kind in _BEGINS:
            self._renew(hosted, call.timeout_s)
        elif call.kind is Kind.MAKE:
            self._start(hosted)
        elif journal.cause is not None:
            journal.need_episode(call.kind.name.lower())
        assert hosted.process is not None  # without one there is a cause
        payload = call.item
        if call.kind in _NUMBERED:  # its own journal began with it
            payload = type(call.item).FromString(call.item.SerializeToString())
            inner = payload.request if call.kind is Kind.RESTORE else payload
            inner.sequence = hosted.process.numbered + 1
        hosted.running = call
        hosted.due = monotonic() + call.timeout_s + _GRACE_S
        self._look_again(hosted)
        self._send(hosted, call.kind, payload, call.timeout_s)

    def _renew(self, hosted: _Hosted, timeout_s: float) -> None:
        """Let an episode begin in a process that has seen none."""
        if hosted.process is None or hosted.process.used:
            self._end(hosted)
            self._start(hosted)
            made = host.HostMakeItem()
            made.CopyFrom(hosted.item)
            made.ClearField("state")
            made.ClearField("resume_seed")
            hosted.making = True
            self._send(hosted, Kind.MAKE, made, timeout_s)
        assert hosted.process is not None  # started
        hosted.process.used = True

    def _start(self, hosted: _Hosted) -> None:
        hosted.process = EpisodeProcess(self._catalog)
        hosted.process.used = hosted.item.HasField("state")
        hosted.making = False
        self._selector.register(hosted.process.connection, selectors.EVENT_READ, hosted)

    def _end(self, hosted: _Hosted) -> str:
        """End the process of an environment, if it has one, and return what it died of."""
        process, hosted.process = hosted.process, None
        if process is None:
            return ""
        self._selector.unregister(process.connection)
        return process.end()

    def _send(self, hosted: _Hosted, kind: Kind, item: Any, timeout_s: float) -> None:
        messages = _MESSAGES[kind]
        payload = (item if messages.reply is None else messages.request(items=[item])).SerializeToString()
        self._write(hosted, pack(Frame(0, kind, 1, timeout_s, payload)))

    def _write(self, hosted: _Hosted, data: bytes = b"") -> None:
        process = hosted.process
        assert process is not None  # the caller sends to one
        try:
            left = process.send(data)
        except OSError:
            return  # it died, and what can be read of its socket says so
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if left else 0)
        if self._selector.get_key(process.connection).events != events:
            self._selector.modify(process.connection, events, hosted)

    # -- replies

    def _on_ready(self, hosted: _Hosted, events: int) -> None:
        process = hosted.process
        assert process is not None  # registered while it lives
        if events & selectors.EVENT_WRITE:
            self._write(hosted)
        if not events & selectors.EVENT_READ:
            return
        try:
            data = process.connection.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            self._lose(hosted, None)
            return
        try:
            for frame in process.reader.feed(data):
                if hosted.process is process:
                    self._hear(hosted, process, frame)
        except (ValueError, DecodeError):
            self._lose(
                hosted,
                EnvLost(
                    f"the process of environment {hosted.item.env_id} answered with what none says, so "
                    "it was ended. Reset the environment."
                ),
            )

    def _hear(self, hosted: _Hosted, process: EpisodeProcess, frame: Frame) -> None:
        """Pass a reply on. Raise `ValueError` or `DecodeError` for one that no process sends whose code is the library's."""
        env_id = hosted.item.env_id
        if frame.kind == Kind.ENDED:
            self._lose(hosted, _ended(env_id, frame.payload))
            return
        call = hosted.running
        kind = Kind.MAKE if hosted.making else call.kind if call is not None else None
        if frame.kind != kind or frame.items != 1:
            raise ValueError("a reply that nobody waits for")
        messages = _MESSAGES[kind]
        reply = messages.response.FromString(frame.payload)
        if messages.reply is not None:
            [reply] = reply.items
        if reply.env_id != env_id:
            raise ValueError("a reply for another environment")
        error = error_of(reply)
        if hosted.making:
            hosted.making = False
            if error is not None:
                self._lose(hosted, error)
            return
        assert call is not None  # its kind is this reply's
        if error is None and call.kind in _NUMBERED:
            process.numbered += 1
            hosted.journal.commit(call.message, reply)
            if call.kind in _BEGINS:
                hosted.journal.settle(done=False)
        hosted.running = None
        self._connection.sendall(pack(Frame(call.number, call.kind, 1, 0.0, frame.payload)))
        if call.kind is Kind.MAKE and error is not None:
            self._end(self._envs.pop(env_id))
        self._next(hosted)

    def _look_again(self, hosted: _Hosted) -> None:
        """Look after what runs no later than it is due. Calls are many, so an environment is mostly looked at already."""
        if hosted.due < hosted.watched:
            hosted.watched = hosted.due
            heapq.heappush(self._watch, (hosted.due, next(self._order), hosted))

    def _end_late(self) -> None:
        """End the processes whose items did not end."""
        now = monotonic()
        while self._watch and self._watch[0][0] <= now:
            _, _, hosted = heapq.heappop(self._watch)
            hosted.watched = inf
            if hosted.running is None:
                continue
            if hosted.due > now:
                self._look_again(hosted)
                continue
            limit_s = hosted.running.timeout_s
            error = DeadlineExceeded(
                f"environment {hosted.item.env_id} ran longer than {limit_s:g} s in one call, and could not be "
                "interrupted: its process was ended."
            )
            self._lose(hosted, error)

    def _lose(self, hosted: _Hosted, error: RockError | None) -> None:
        """End the process of an environment that is of no use any more; without an error it has died by itself."""
        env_id = hosted.item.env_id
        cause = self._end(hosted)
        if error is None:
            error = EnvLost(
                f"the process of environment {env_id} died: {cause}. Reset the environment, or make it again."
            )
            log.error("episode died env_id=%s cause=%s", env_id, cause)
        hosted.journal.broke(error)
        call, hosted.running = hosted.running, None
        if call is not None:
            self._fail(call, error)
            if call.kind is Kind.MAKE:
                self._envs.pop(env_id, None)
        self._next(hosted)

    def _fail(self, call: _Call, error: RockError) -> None:
        messages = _MESSAGES[call.kind]
        reply_type = messages.reply or messages.response
        self._answer(call, fill_error(reply_type(env_id=call.message.env_id), error))

    def _answer(self, call: _Call, reply: Any) -> None:
        messages = _MESSAGES[call.kind]
        message = reply if messages.reply is None else messages.response(items=[reply])
        self._connection.sendall(pack(Frame(call.number, call.kind, 1, 0.0, message.SerializeToString())))


def _ended(env_id: str, event: bytes) -> RockError:
    name = "".join(sign for sign in event.decode("ascii", "replace") if sign.isalnum() or sign in "._")
    return PermissionDenied(
        f"environment {env_id} was ended before its library ran code for an answer (audit event "
        f"{name[:_MOST_EVENT_CHARS]}): a scorer that does so can be fooled. There is no reward. Reset the environment."
    )


def main() -> None:
    """Serve the inherited socket."""
    connection, catalog = inherited()
    with connection:
        raise_handles()
        EpisodeHost(connection, catalog).serve()


if __name__ == "__main__":
    main()
