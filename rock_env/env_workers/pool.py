"""The env-host workers of a server: start, feed, watch and replace the processes that run environments.

It moves frames and never reads one; an environment on a dead worker is lost for good, and the next Make starts a new
worker in its place.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

from rock_env.env_workers.fencing import Fence, Fencing, how_it_ended
from rock_env.env_workers.frames import MOST_BYTES, Frame, Kind, WorkerFrameReader, pack
from rock_env.env_workers.starting import start_worker
from rock_env.errors import EnvLost, InfraError, ResourceExhausted
from rock_env.security.auth import current_tenant
from rock_env.threads import for_life

__all__ = ["EnvHostPool", "EnvHostWorker", "FrameSink"]

log = logging.getLogger(__name__)

_MOST_TENANTS = 64
"""So many tenants have workers at once; each takes one process per CPU."""
_TENANTS_RETRY_S = 30.0
_END_S = 5.0
"""How long a worker that has closed its socket may take to end."""
_CLOSE_GRACE_S = 2.0
"""How long a worker may take to close its environments when the server stops."""


class FrameSink(Protocol):
    """Where the replies of one call go."""

    def frame(self, frame: Frame) -> None:
        """Take a reply frame. Items come in request order. Raise `ValueError` for one that is no reply."""
        ...

    def lost(self, answered: int, error: EnvLost) -> None:
        """Learn that the worker died after `answered` items; no more frames follow."""
        ...


class _Call:
    __slots__ = ("answered", "count", "kind", "sink", "timeout_s")

    def __init__(self, kind: Kind, count: int, timeout_s: float, sink: FrameSink) -> None:
        self.kind = kind
        self.count = count
        self.timeout_s = timeout_s
        self.sink = sink
        self.answered = 0


class EnvHostWorker(asyncio.Protocol):
    """One worker process and the socket to it. Use only on the server's event loop."""

    def __init__(
        self, process: subprocess.Popen[bytes], hang_grace_s: float, fence: Fence | None = None
    ) -> None:
        self.envs = 0
        """How many environments live here: the pool's measure of load, kept by the core."""
        self.forks = False
        """Whether each environment here has a process of its own; its calls then have one item."""
        self.lost: EnvLost | None = None
        self.pid = process.pid
        self._process, self._fence = process, fence
        self._hang_grace_s = hang_grace_s
        self._reader = WorkerFrameReader(MOST_BYTES)
        self._calls: dict[int, _Call] = {}  # in sending order, which is the worker's order
        self._last_id = 0
        self._loop = asyncio.get_running_loop()
        self._progress_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._killed_for = ""
        self._closing = False
        self._transport: asyncio.Transport | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def gone(self) -> bool:
        """Return whether its connection has ended; `lost` says how, an instant later."""
        return self._ending is not None

    def send(self, kind: Kind, payload: bytes, *, count: int, timeout_s: float, sink: FrameSink) -> None:
        """Queue a call of `count` items; each may run for `timeout_s`. Replies go to `sink`, also on death."""
        if self.lost is not None or self._transport is None:
            sink.lost(0, self.lost or EnvLost(f"env-host worker {self.pid} is not connected."))
            return
        self._last_id = (self._last_id + 1) & 0xFFFFFFFF
        if not self._calls:
            self._progress_at = self._loop.time()
        self._calls[self._last_id] = _Call(kind, count, timeout_s, sink)
        if self.gone:
            return  # it is told as soon as it is known how
        self._transport.write(pack(Frame(self._last_id, kind, count, timeout_s, payload)))
        self._watch_head()

    def _due(self) -> float:
        """Return when the worker must have answered another item of the call it works on."""
        head = next(iter(self._calls.values()))
        return self._progress_at + head.timeout_s + self._hang_grace_s

    def _watch_head(self) -> None:
        """Set the timer if none will fire in time. An early one is no harm: it looks and sets itself again."""
        due = self._due()
        if self._watch is None or due < self._watch.when():
            if self._watch is not None:
                self._watch.cancel()
            self._watch = self._loop.call_at(due, self._check_progress)

    def _check_progress(self) -> None:
        """Kill a worker whose running item neither ended nor could be interrupted (blocked in native code)."""
        self._watch = None
        if not self._calls:
            return
        if self._loop.time() < self._due():
            self._watch_head()
            return
        limit_s = self._due() - self._progress_at
        log.error("env host hung pid=%d", self.pid)
        self._kill(f"no progress within {limit_s:g} s")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream socket's transport

    def data_received(self, data: bytes) -> None:
        if self._killed_for:
            return
        self._progress_at = self._loop.time()
        try:
            for frame in self._reader.feed(data):
                self._answered(frame)
        except ValueError as error:
            self._disbelieve(str(error))
            return
        if self._calls:
            self._watch_head()

    def _answered(self, frame: Frame) -> None:
        """Pass a reply on. Raise `ValueError` for one that no worker sends: its environments' code may be a tenant's."""
        call = self._calls.get(frame.call_id)
        if call is None or frame.kind != call.kind or not 0 < frame.items <= call.count - call.answered:
            raise ValueError("a reply that nobody waits for")
        call.sink.frame(frame)
        call.answered += frame.items
        if call.answered == call.count:
            del self._calls[frame.call_id]

    def _disbelieve(self, what: str) -> None:
        """End a worker that said what none says."""
        log.error("env host killed pid=%d said=%s", self.pid, what)
        self._kill(f"it answered with {what}")

    def _kill(self, why: str) -> None:
        self._killed_for = self._killed_for or f"{why}, so the service killed it"
        self._process.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if not self._closing:
            self._ending = self._loop.create_task(self._end())

    async def _end(self) -> None:
        """Say how the process ended. Its sockets close an instant before it can be reaped, or long before where it lies."""
        try:
            code = await for_life(self._process.wait, _END_S)
        except subprocess.TimeoutExpired:
            self._killed_for = self._killed_for or "it closed its connection, so the service killed it"
            self._process.kill()
            code = await for_life(self._process.wait)
        ended = await for_life(how_it_ended, code, self._fence)
        why = self._killed_for or ended
        self.lost = EnvLost(f"the env-host worker (pid {self.pid}) died: {why}. Make the environment again.")
        calls, self._calls = self._calls, {}
        if calls or self.envs:
            log.error("env host died pid=%d envs=%d cause=%s", self.pid, self.envs, why)
        for call in calls.values():
            call.sink.lost(call.answered, self.lost)

    async def close(self) -> None:
        """Let the worker close its environments and exit; kill it after a grace time."""
        self._closing = True
        if self._transport is not None:
            self._transport.close()
        try:
            await for_life(self._process.wait, _CLOSE_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await for_life(self._process.wait)
        if self._fence is not None:
            await for_life(self._fence.take_down)


def _load(worker: EnvHostWorker) -> int:
    return worker.envs


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Share:
    """The workers of one tenant for one library, or for all environments of none."""

    def __init__(self, size: int) -> None:
        self.slots: list[EnvHostWorker | None] = [None] * size
        self.starting = asyncio.Lock()
        self.lending = asyncio.Lock()

    @property
    def alive(self) -> list[EnvHostWorker]:
        return [worker for worker in self.slots if worker is not None and not worker.gone]

    @property
    def busy(self) -> bool:
        """Whether an environment lives here, or somebody waits for a worker."""
        return self.starting.locked() or self.lending.locked() or any(worker.envs for worker in self.alive)


class EnvHostPool:
    """The workers of one server, started when a tenant's first environment needs them; no two tenants share one."""

    def __init__(
        self,
        *,
        workers: int = 0,
        references: Sequence[str] = (),
        hang_grace_s: float = 5.0,
        memory_bytes: int = 0,
        fencing: Fencing | None = None,
    ) -> None:
        """Take how many workers one tenant has, and what each may allocate; 0 is one per CPU, and no limit.

        Without a fence the code of an environment may do what the server's user may.
        """
        self.size = workers or _cpus()
        self._shares: dict[tuple[str, str], _Share] = {}
        self._references = tuple(references)
        self._hang_grace_s = hang_grace_s
        self._memory_bytes = memory_bytes
        self._fencing = fencing

    @property
    def workers(self) -> list[EnvHostWorker]:
        """Return the workers that run now, of all tenants."""
        return [worker for share in self._shares.values() for worker in share.alive]

    async def assign(self, count: int, *, library: str = "") -> list[EnvHostWorker]:
        """Choose workers of the present tenant for `count` new environments of a library, the least loaded first.

        What is missing is started or replaced. The chosen workers' `envs` already include them; the core takes them
        off again. Raise `ResourceExhausted` where too many tenants have environments.
        """
        share = await self._share(library)
        alive = share.alive
        if not alive:
            raise InfraError("every env-host worker died while it started. See the server's log.")
        chosen = []
        for _ in range(count):
            worker = min(alive, key=_load)
            worker.envs += 1
            chosen.append(worker)
        return chosen

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[EnvHostWorker]:
        """Yield a worker of the present tenant for one call that belongs to no environment; one such call at a time."""
        share = await self._share("")
        async with share.lending:
            [worker] = await self.assign(1)
            try:
                yield worker
            finally:
                worker.envs -= 1

    async def _share(self, library: str) -> _Share:
        """Return the present tenant's share for a library, with all of its workers running."""
        key = (current_tenant(), library)
        share = self._shares.get(key)
        if share is None:
            if len(self._shares) >= _MOST_TENANTS:
                await self.release()
            if len(self._shares) >= _MOST_TENANTS:
                raise ResourceExhausted(
                    f"{_MOST_TENANTS} tenants have environments in workers of this server, the most it takes (a hosted "
                    "library counts as one more). Try again when one has closed its own.",
                    retry_after_s=_TENANTS_RETRY_S,
                )
            # A library's worker forks a process for every episode, so one is enough.
            share = self._shares[key] = _Share(1 if library else self.size)
        async with share.starting:
            for slot, worker in enumerate(share.slots):
                if worker is None or worker.gone:
                    share.slots[slot] = await self._spawn(library)
        return share

    async def release(self) -> None:
        """Stop workers that have no environment, but for those that were needed last where none has."""
        idle = [key for key, share in self._shares.items() if not share.busy]
        if len(idle) == len(self._shares):
            idle = idle[:-1]
        gone = [self._shares.pop(key) for key in idle]
        await asyncio.gather(*(worker.close() for share in gone for worker in share.alive))

    async def _spawn(self, library: str) -> EnvHostWorker:
        fence = None if self._fencing is None else await self._fencing.of(library)
        module = f"rock_env.env_workers.{'episode_host' if library else 'host'}"
        variables = {**os.environ, "PYTHONHASHSEED": "0"}  # the order of a set is no chance of an episode
        process, ours = start_worker(module, self._references, self._memory_bytes, fence, variables)
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        _, worker = await loop.create_unix_connection(
            lambda: EnvHostWorker(process, self._hang_grace_s, fence), sock=ours
        )
        worker.forks = bool(library)
        log.info("env host started pid=%d", process.pid)
        return worker

    async def close(self) -> None:
        """Stop every worker."""
        await asyncio.gather(*(worker.close() for worker in self.workers))
