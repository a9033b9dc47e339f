"""Workers that run the rules of environments with a sandbox: one process for each tenant, started when it is needed.

The service keeps the sandboxes; a worker asks it for each act on the boxes of the call it works on (`rules_calls`). A worker
that says something else than that, takes too much, or does not give up a call is killed: its environments are lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import subprocess
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from itertools import count
from typing import Any, TypeVar

import msgspec

from rock_env.env import Attachment, FreshBoxes, Info, Scalar, StepResult, Verdict
from rock_env.env_workers.fencing import Fence, Fencing, how_it_ended
from rock_env.env_workers.rules_wire import Failed, FromWorker, Wish, framed, read_frame, rebuilt
from rock_env.env_workers.starting import start_worker
from rock_env.errors import (
    DeadlineExceeded,
    EnvLost,
    InfraError,
    InvalidArgument,
    ResourceExhausted,
    RockError,
)
from rock_env.sandbox import Sandbox
from rock_env.security.auth import current_tenant
from rock_env.server.envs.byte_room import ByteRoom
from rock_env.server.envs.rules_calls import RulesCall
from rock_env.spec import TaskSpec
from rock_env.threads import for_life

__all__ = ["RulesPool", "WorkerRules"]

log = logging.getLogger(__name__)

_MOST_TENANTS = 64
"""So many tenants have a worker at once."""
_TENANTS_RETRY_S = 30.0
_GRACES = 6
"""So many times the grace of an env host a worker may take to give up a call: it has one loop for all its environments, and
an honest one may be parsing a large report for another of them."""
_END_S = 1.0
"""How long a worker that has closed its socket may take to end."""
_CLOSE_GRACE_S = 2.0
_TURN = 32
"""So many messages of a worker are taken before others have their turn."""
_MOST_STRAYS = 10_000
"""Wishes for calls that were given up."""
_DROP_S = 5.0
_MOST_VALUE = 8 << 20
"""Of a reply other than a task or a snapshot."""
_decode = msgspec.msgpack.Decoder(FromWorker).decode
T = TypeVar("T")


class RulesWorker:
    """One worker process and the socket to it. Use only on the server's event loop."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        give_up_s: float,
        room_bytes: int,
        fence: Fence | None = None,
    ) -> None:
        """Take a process, the two ways of its socket and what its unread answers may have in all."""
        self.envs = 0
        """How many environments live here."""
        self.lost: EnvLost | None = None
        self.pid = process.pid
        self._process, self._reader, self._writer, self._fence = process, reader, writer, fence
        self._give_up_s, self._room = give_up_s, ByteRoom(room_bytes)
        self._calls: dict[int, RulesCall] = {}
        self._given_up: dict[int, asyncio.TimerHandle] = {}
        self._last = 0
        self._strays = 0
        self._closing = False
        self._listening = asyncio.create_task(self._listen())

    async def call(
        self, op: str, *arguments: Any, box: Sandbox | None = None, fresh: FreshBoxes | None = None
    ) -> Any:
        """Run one call to its value. Raise the `RockError` it ends in, `EnvLost` where the worker dies."""
        if self.lost is not None:
            raise self.lost
        self._last += 1
        number, call = self._last, RulesCall(box, fresh, self._room)
        self._calls[number] = call
        try:
            self._send(number, op, arguments)
            await self._sent()
            return await call.outcome
        except asyncio.CancelledError:
            self._give_up(number)
            raise
        finally:
            del self._calls[number]
            await call.end()

    def _send(self, number: int, op: str, arguments: tuple[Any, ...]) -> None:
        if self.lost is None:
            self._writer.write(framed(pickle.dumps((number, op, arguments))))

    async def _sent(self) -> None:
        """Wait while much waits to be read by the worker; where it is lost its calls are told elsewhere."""
        with suppress(ConnectionError):
            await self._writer.drain()

    def _give_up(self, number: int) -> None:
        self._send(number, "cancel", ())
        loop = asyncio.get_running_loop()
        self._given_up[number] = loop.call_later(
            self._give_up_s, self._end, f"it did not give up a call within {self._give_up_s:g} s"
        )

    async def _listen(self) -> None:
        """Take what the worker says until it ends; whatever it said that cannot be taken ends it."""
        why = ""
        try:
            for number in count(1):
                self._take(_decode(await read_frame(self._reader)))
                if number % _TURN == 0:
                    await asyncio.sleep(0)  # others have their turn, however much it says
        except (asyncio.IncompleteReadError, ConnectionError):
            with suppress(subprocess.TimeoutExpired):
                code = await for_life(self._process.wait, _END_S)
                why = await for_life(how_it_ended, code, self._fence)
        except Exception as error:  # noqa: BLE001 -- named boundary: what a worker says
            why = f"it said what no worker says ({type(error).__name__}: {error})"
        self._end(why)

    def _take(self, message: FromWorker) -> None:
        call = self._calls.get(message.call)
        if isinstance(message, Wish):
            if call is None or call.outcome.done():
                self._strays += 1  # it was given up meanwhile, and nobody waits for an answer
                if message.call > self._last or self._strays > _MOST_STRAYS:
                    raise ValueError("it asks for calls that do not run")
                return
            if call.full:
                raise ValueError("it asks for too much at once")
            call.spawn(self._answer(call, message))
            return
        if timer := self._given_up.pop(message.call, None):
            timer.cancel()
            return
        if call is None or call.outcome.done():
            raise ValueError("it ends a call that does not run")
        if isinstance(message, Failed):
            call.outcome.set_exception(rebuilt(message))
        else:
            call.outcome.set_result(message.value)

    async def _answer(self, call: RulesCall, ask: Wish) -> None:
        """Carry out a wish and tell its outcome, once the worker has read what was told before."""
        await self._sent()
        async with AsyncExitStack() as answered:
            value, error = await self._outcome(call, ask, answered)
            failure = call.failure(ask.of)
            try:
                self._send(ask.call, "answer", (ask.ask, value, error, failure))
            except InvalidArgument as large:
                self._send(ask.call, "answer", (ask.ask, None, _told(large), failure))
            await self._sent()

    async def _outcome(self, call: RulesCall, ask: Wish, answered: AsyncExitStack) -> tuple[Any, Any]:
        """Return a wish's value or its error; this is the boundary for wishes that make no sense."""
        try:
            return await call.act(ask, answered), None
        except RockError as known:
            return None, _told(known)
        except Exception as unknown:  # noqa: BLE001 -- named boundary: arguments that a worker chose
            log.warning("a worker's wish failed method=%s error=%s", ask.method, unknown)
            what = f"{type(unknown).__name__}: {unknown}"
            return None, _told(InfraError(f"{ask.method} in the environment's sandbox failed: {what}."))

    def _end(self, why: str) -> None:
        """Be lost: kill the process, and let every call end."""
        if self.lost is not None:
            return
        self._process.kill()
        why = why or "it closed its connection"
        self.lost = EnvLost(
            f"the worker of the environment's code (pid {self.pid}) died: {why}. Make the environment again."
        )
        if (self.envs or self._calls) and not self._closing:
            log.error("rules worker died pid=%d envs=%d cause=%s", self.pid, self.envs, why)
        self._writer.close()
        for timer in self._given_up.values():
            timer.cancel()
        for call in self._calls.values():
            if not call.outcome.done():
                call.outcome.set_exception(self.lost)

    async def close(self) -> None:
        """End the process."""
        self._closing = True
        self._end("the server stops")
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)
        await for_life(self._process.wait, _CLOSE_GRACE_S)
        if self._fence is not None:
            await for_life(self._fence.take_down)


class RulesPool:
    """The workers of one server."""

    def __init__(
        self,
        *,
        references: Sequence[str],
        memory_bytes: int,
        fencing: Fencing | None,
        make_timeout_s: float,
        hang_grace_s: float,
    ) -> None:
        """Take what a worker is started with; without a fence its code may do what the server's user may."""
        self._references, self._memory_bytes, self._fencing = tuple(references), memory_bytes, fencing
        self._make_timeout_s, self._give_up_s = make_timeout_s, _GRACES * hang_grace_s
        self._workers: dict[str, RulesWorker] = {}
        self._starting: dict[str, asyncio.Lock] = {}
        self._room = asyncio.Lock()

    async def make(self, env_id: str, name: str, params_json: str) -> WorkerRules:
        """Make an environment's rules in the present tenant's worker. Raise what its arguments are refused with."""
        try:
            return await self._make_on(await self._worker(), env_id, name, params_json)
        except EnvLost:  # by what another environment did meanwhile; these arguments are tried once more
            return await self._make_on(await self._worker(), env_id, name, params_json)

    async def _make_on(self, worker: RulesWorker, env_id: str, name: str, params_json: str) -> WorkerRules:
        worker.envs += 1
        try:
            async with asyncio.timeout(self._make_timeout_s) as limit:
                made = await worker.call("make", env_id, name, params_json)
            canonical, *can = _read(made, tuple[str, bool, bool, bool], "make")
        except BaseException as error:
            worker.envs -= 1
            if isinstance(error, TimeoutError) and limit.expired():
                raise DeadlineExceeded(
                    f"making environment {name} ran longer than {self._make_timeout_s:g} s. Use smaller arguments."
                ) from error
            raise
        return WorkerRules(worker, env_id, canonical, *can)

    async def _worker(self) -> RulesWorker:
        tenant = current_tenant()
        async with self._starting.setdefault(tenant, asyncio.Lock()):
            worker = self._workers.get(tenant)
            if worker is None or worker.lost is not None:
                async with self._room:
                    await self._make_room()
                    worker = self._workers[tenant] = await self._spawn()
        return worker

    async def _make_room(self) -> None:
        if len(self._workers) < _MOST_TENANTS:
            return
        idle = [tenant for tenant, worker in self._workers.items() if not worker.envs]
        gone = [self._workers.pop(tenant) for tenant in idle]
        await asyncio.gather(*(worker.close() for worker in gone))
        if len(self._workers) >= _MOST_TENANTS:
            raise ResourceExhausted(
                f"{_MOST_TENANTS} tenants have environments with a sandbox on this server, the most it takes. Try again "
                "when one has closed its own.",
                retry_after_s=_TENANTS_RETRY_S,
            )

    async def _spawn(self) -> RulesWorker:
        fence = None if self._fencing is None else await self._fencing.of()
        process, ours = start_worker(
            "rock_env.env_workers.rules_host", self._references, self._memory_bytes, fence, os.environ
        )
        reader, writer = await asyncio.open_connection(sock=ours)
        log.info("rules worker started pid=%d", process.pid)
        return RulesWorker(
            process,
            reader,
            writer,
            give_up_s=self._give_up_s,
            room_bytes=self._memory_bytes,
            fence=fence,
        )

    async def close(self) -> None:
        """Stop every worker."""
        await asyncio.gather(*(worker.close() for worker in self._workers.values()))


class WorkerRules:
    """Rules that run in a worker. Satisfies `Rules`; what the worker answers is checked before anybody sees it."""

    def __init__(self, worker: RulesWorker, env_id: str, canonical: str, *can: bool) -> None:
        """Take what the worker said of the environment: whether it is fresh-graded, restorable and attaching."""
        self.canonical = canonical
        self.fresh_graded, self.restorable, self.attaching = can
        self._worker, self._env_id = worker, env_id
        self._closed = False

    async def _ask(self, kind: type[T], op: str, *arguments: Any, **boxes: Any) -> T:
        return _read(await self._worker.call(op, self._env_id, *arguments, **boxes), kind, op)

    async def task(self, task_id: str) -> TaskSpec:
        return await self._ask(TaskSpec, "task", task_id)

    async def reset(self, box: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        found = await self._ask(tuple[str, dict[str, Scalar]], "reset", box.id, task.id, seed, box=box)
        return found[0], found[1]

    async def step(self, box: Sandbox, action: str) -> StepResult:
        return await self._ask(StepResult, "step", box.id, action, box=box)

    async def evaluate(self, box: Sandbox) -> Verdict:
        return await self._ask(Verdict, "evaluate", box.id, box=box)

    async def grade(self, box: Sandbox, fresh: FreshBoxes) -> Verdict:
        return await self._ask(Verdict, "grade", box.id, box=box, fresh=fresh)

    async def keeps_running(self) -> bool:
        return await self._ask(bool, "keeps_running")

    async def attachments(self) -> Sequence[Attachment]:
        return await self._ask(list[Attachment], "attachments")

    async def snapshot(self) -> bytes:
        return await self._ask(bytes, "snapshot")

    async def restore(self, state: bytes) -> None:
        await self._ask(type(None), "restore", state)

    async def close(self) -> None:
        """Let the worker forget the environment."""
        if not self._closed:
            self._closed = True
            self._worker.envs -= 1
            if self._worker.lost is None:
                with suppress(RockError, TimeoutError):  # one that does not answer is killed for that
                    async with asyncio.timeout(_DROP_S):
                        await self._worker.call("drop", self._env_id)


def _told(error: RockError) -> tuple[str, str, float | None, bool]:
    """Return an error as a worker is told it."""
    return error.code, error.message, error.retry_after_s, error.own_limit


def _read(value: msgspec.Raw, kind: type[T], op: str) -> T:
    """Return a worker's reply as the type that was asked for. Raise `InfraError` for any other."""
    if len(value) > _MOST_VALUE and kind not in (TaskSpec, bytes):
        raise InfraError(
            f"{op} of the environment's code returned {len(value)} bytes, expected at most {_MOST_VALUE}. Make its "
            "observations smaller."
        )
    try:
        return msgspec.msgpack.decode(value, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InfraError(f"{op} of the environment's code returned what it should not: {error}.") from error
