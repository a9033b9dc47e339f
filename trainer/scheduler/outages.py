"""Waits out an outage of ROCK: sampling pauses, and the rollouts that it cost are played again from their requests.

A rollout whose server is away is no failure of a plan. Nobody begins another one meanwhile, those under way end as they
may, and when the server takes calls again what failed is played as if for the first time: the same requests, the same
seeds. `WaitingCalls` does so for the scheduler, real or simulated, `Outages.run` for evaluations. Whether the server is away
only its own health check says: a failure's code may come from whatever it hosts.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, NoReturn

from agent_runtime.store import decode
from agent_runtime.types import RolloutRequest
from rock_env.errors import DeadlineExceeded, EnvLost, NotFound, SandboxLost, Unavailable
from rock_env.threads import completed
from trainer.config import TrainConfig
from trainer.errors import OutageTooLong, Stopped
from trainer.live.events import RunEvent
from trainer.live.status import lasting
from trainer.reward.router import Rewarded
from trainer.scheduler.sampling import Calls

__all__ = ["MOST_TIMES", "Outages", "WaitingCalls"]

MOST_TIMES = 8
"""A rollout is played. One that takes its server along would otherwise do so for ever: it is a failure then."""
_ASK_S, _MOST_ASK_S = 1.0, 30.0
"""Until the server is first asked whether it is back; twice as long after each no, up to this."""
_LOOK_S = 0.5
"""Between two looks whether somebody wants to stop, or another one found the server back."""
_CODES = frozenset(each.code for each in (Unavailable, DeadlineExceeded, EnvLost, SandboxLost, NotFound))
"""Of failures that an outage may explain: where the server is away, or was since the rollout began."""
_ENCODED = tuple(code.encode() for code in _CODES)
_DOUBTS = 4
"""Times that a rollout is played again which ended with `unavailable` while the server took calls, after growing pauses: the
engine or cluster that it hosts on may be away."""


class Outages:
    """Whether ROCK is away, how often it was and for how long. Asked from any thread, on any event loop."""

    def __init__(
        self,
        config: TrainConfig,
        answers: Callable[[], Awaitable[bool]],
        *,
        clock: Callable[[], float],
        say: Callable[[RunEvent], None] = lambda event: None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """`answers()` says whether the server takes calls; not of ours where it starts it again. `clock()` is in seconds."""
        address = config.rollout.rock_address
        self._name = f"ROCK at {address}" if address else "the run's own ROCK server"
        self._most_s, self._lockstep = config.rollout.outage_s, config.rollout.batching == "lockstep"
        self._answers, self._clock, self._say, self._is_stopping = answers, clock, say, is_stopping
        self._lock = threading.Lock()
        self._since: float | None = None
        self._since_time = ""
        self._back = -math.inf
        """When the server was last found back."""
        self._is_asked = False
        """Somebody asks it; others look at what comes of that."""
        self._count, self._past_s = 0, 0.0

    def metrics(self) -> dict[str, float]:
        """Return how many outages there were so far, and how long they took in all; empty where none is waited for."""
        if not self._most_s:
            return {}
        with self._lock:
            now_s = 0.0 if self._since is None else self._clock() - self._since
            return {"outages/count": float(self._count), "outages/s": self._past_s + now_s}

    async def play(
        self,
        requests: Sequence[RolloutRequest],
        play: Callable[[Sequence[RolloutRequest]], Awaitable[list[list[bytes]]]],
    ) -> list[list[bytes]]:
        """Return what `play` gives for each request: all attempts, the last of which no outage ended.

        Raise `Stopped` where somebody wants the run to end meanwhile, and `OutageTooLong`.
        """
        left, played, doubts = list(requests), dict[str, list[bytes]](), 0
        for _ in range(MOST_TIMES):
            await self._over()
            begun = self._clock()
            played |= zip((request.id for request in left), await play(left), strict=True)
            left, doubts = await self._again(requests, left, played, begun, doubts)
            if not left:
                break
        return [played[request.id] for request in requests]

    def run(
        self, requests: Sequence[RolloutRequest], run: Callable[[Sequence[RolloutRequest]], list[bytes]]
    ) -> list[bytes]:
        """Do so for rollouts that are played once, on a thread that waits for them."""
        left, played, doubts = list(requests), dict[str, list[bytes]](), 0
        for _ in range(MOST_TIMES):
            if self._since is not None:
                completed(self._over())
            begun = self._clock()
            played |= zip((request.id for request in left), ([each] for each in run(left)), strict=True)
            left, doubts = completed(self._again(requests, left, played, begun, doubts))
            if not left:
                break
        return [played[request.id][-1] for request in requests]

    async def _again(
        self,
        requests: Sequence[RolloutRequest],
        left: Sequence[RolloutRequest],
        played: Mapping[str, Sequence[bytes]],
        begun: float,
        doubts: int,
    ) -> tuple[list[RolloutRequest], int]:
        """Return which requests are to be played again after `left` was, which began at that time, and the doubts so far.

        With `rollout.batching=lockstep` an outage has all of them played again, so that each batch of samples is what it
        would have been.
        """
        causes = {request.id: await self._cause(played[request.id][-1], begun) for request in left}
        again = [request for request in left if causes[request.id]]
        if "outage" in causes.values():
            return list(requests) if self._lockstep else again, doubts
        if again and doubts < _DOUBTS:
            await self._pause(_ASK_S * 2**doubts)
            return again, doubts + 1
        return [], doubts

    async def _cause(self, encoded: bytes, begun: float) -> Literal["", "outage", "doubt"]:
        """Return what ended a rollout, and take note of an outage that is new."""
        if not self._most_s or not any(code in encoded for code in _ENCODED):
            return ""
        failure = decode(encoded).failure
        if failure is None or failure.code not in _CODES:
            return ""
        if self._since is not None or begun < self._back:
            return "outage"
        if not await self._answers():
            self._begin()
            return "outage"
        return "doubt" if failure.code == Unavailable.code else ""

    def _begin(self) -> None:
        with self._lock:
            if self._since is not None:
                return
            self._since, self._since_time = self._clock(), datetime.now().strftime("%H:%M:%S")
            self._count += 1
        said = f"sampling waits for it, {lasting(self._most_s)} at most (rollout.outage_s)"
        self._say(RunEvent("fault", f"{self._name} is away since {self._since_time}: {said}"))

    def _end(self) -> None:
        with self._lock:
            if self._since is None:
                return
            self._back = self._clock()
            took_s, self._since = self._back - self._since, None
            self._past_s += took_s
        said = f"{self._name} is back after {lasting(took_s)}: sampling goes on"
        self._say(RunEvent("recovery", f"{said}, and the rollouts that it cost are played again"))

    async def _over(self) -> None:
        """Return when the server is not away. Raise `Stopped` and `OutageTooLong`."""
        while self._since is not None:
            if not self._take_turn():
                self._check()
                await asyncio.sleep(_LOOK_S)
                continue
            try:
                await self._ask()
            finally:
                self._is_asked = False

    def _take_turn(self) -> bool:
        with self._lock:
            if self._is_asked:
                return False
            self._is_asked = True
            return True

    async def _ask(self) -> None:
        """Ask until the server takes calls."""
        pause_s = _ASK_S
        while True:
            await self._pause(pause_s)
            asked = asyncio.ensure_future(self._answers())
            try:
                while not asked.done():
                    self._check()
                    await asyncio.wait({asked}, timeout=_LOOK_S)
            finally:
                asked.cancel()  # nobody waits for a server that takes long to start
            if asked.result():
                self._end()
                return
            pause_s = min(2 * pause_s, _MOST_ASK_S)

    async def _pause(self, seconds: float) -> None:
        for _ in range(math.ceil(seconds / _LOOK_S)):
            self._check()
            await asyncio.sleep(_LOOK_S)

    def _check(self) -> None:
        """Raise `Stopped` where somebody wants the run to end, and `OutageTooLong`."""
        if self._is_stopping():
            raise Stopped(f"the run was to end while {self._name} was away")
        since = self._since
        if since is not None and self._clock() - since > self._most_s:
            raise OutageTooLong(
                f"{self._name} is away since {self._since_time}, longer than rollout.outage_s={self._most_s:g} s. All that "
                "was learned is saved: when it is there again, continue with --resume."
            )


class WaitingCalls:
    """`Calls` to which an outage of ROCK costs nothing but time."""

    def __init__(self, calls: Calls, outages: Outages) -> None:
        self._calls, self._outages = calls, outages

    @property
    def slots(self) -> Sequence[int]:
        """Return the most rollouts that each worker runs at once."""
        return self._calls.slots

    @property
    def server_end(self) -> str:
        """Say how the embedded ROCK server ended; empty while it runs."""
        return self._calls.server_end

    async def serve(self, version: int) -> int:
        """Have every sampler hold the weights of a version, as `Calls.serve`."""
        return await self._calls.serve(version)

    async def play_at(
        self, worker: int, requests: Sequence[RolloutRequest], policy_step: int
    ) -> list[list[bytes]]:
        """Return all attempts at each request when no outage ended one. Raise as `Outages.play`."""
        return await self._outages.play(requests, lambda left: self._calls.play_at(worker, left, policy_step))

    async def fails(self) -> NoReturn:
        """Raise `Halted` as soon as nobody can sample any more."""
        await self._calls.fails()
        raise AssertionError("it raises")

    async def judge(self, encoded: Sequence[bytes], run_folder: Path) -> Rewarded:
        """Let the reward workers judge trajectories, as `Calls.judge`."""
        return await self._calls.judge(encoded, run_folder)
