"""What a simulated run is made of: engines, environments and weights that take time, and plans that take none.

`SimulatedCalls` is what `trainer.processes.fleet.Fleet` is to the scheduler, `Plans` what `scheduler.drawn.Drawn` is. What a
rollout takes is drawn by its own seed, whoever plays it and when. Nothing here decides what is played next.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from random import Random
from typing import NoReturn
from zlib import crc32

import numpy as np

from agent_runtime.store import decode, encode
from agent_runtime.types import (
    RolloutFailure,
    RolloutRequest,
    StopReason,
    Trajectory,
    Turn,
    VersionTokens,
)
from rock_env.errors import Unavailable
from trainer.config import TrainConfig
from trainer.errors import TrainerError
from trainer.reward.router import Rewarded
from trainer.rollout.filling import Rollouts
from trainer.rollout.filtering import attempts
from trainer.rollout.planning import Plan
from trainer.rollout.starts import Anchor
from trainer.rollout.tasks import train_requests
from trainer.scheduler.journal import BatchTally
from trainer.seeds import derive
from trainer.simulator.fleet import FleetTimes, Sampler

__all__ = [
    "Engine",
    "Plans",
    "PromiseBroken",
    "Script",
    "SimulatedCalls",
    "Weights",
    "record_of",
    "script_of",
]

_NONE = np.zeros(0, np.int32)
_PATIENCE_S = 60.0
"""How long a rollout tries a call again that does not reach ROCK."""
_Sample = Callable[[float], Awaitable[float]]
"""Sample so many tokens; return the seconds that it took, without waiting for others."""


class PromiseBroken(TrainerError, RuntimeError):
    """The scheduler did what it promises not to do: an error of its own, not of the settings."""


@dataclass(frozen=True, slots=True)
class Script:
    """What one rollout takes, drawn before it begins."""

    begin_s: float
    """Refusals, making and resetting the environment."""
    turns: tuple[tuple[float, float], ...]
    """Of each the tokens to sample, and the seconds of the environment's step."""
    end_s: float
    """Grading it."""
    is_lost: bool
    """Its environment is lost in the last of these turns."""
    won: bool

    @property
    def env_s(self) -> float:
        """Return the seconds that its environment takes."""
        return self.begin_s + sum(step_s for _, step_s in self.turns) + self.end_s


def script_of(
    request: RolloutRequest, fleet: FleetTimes, took: tuple[int, float, float] | None = None, slow: float = 1
) -> Script:
    """Draw what a rollout takes, or have it take what a recorded one `took`; environments are `slow` times slower."""
    random, env, faults = Random(derive(request.seed, "simulated")), fleet.environment, fleet.faults
    begin_s = 0.0
    while random.random() < faults.refused:
        begin_s += faults.refused_s.draw(random)
    won, is_lost = random.random() < env.success, random.random() < faults.lost
    if took is not None:
        count, end_s = max(1, took[0]), 0.0
        turns = [(took[1] / count, slow * max(0.0, took[2] - took[1]) / count)] * count
    else:
        begin_s += slow * env.make_s.draw(random)
        count = max(1, round(env.turns.draw(random)))
        step = slow * env.task_factor.draw(Random(derive(0, "task", request.task_id)))
        step *= env.rollout_factor.draw(Random(derive(request.seed, "factor")))
        turns = [(fleet.sampler.tokens.draw(random), step * env.step_s.draw(random)) for _ in range(count)]
        end_s = slow * env.grade_s.draw(random)
    if is_lost:
        turns, end_s = turns[: random.randint(1, count)], 0.0
    return Script(begin_s, tuple(turns), end_s, is_lost, won)


class Engine:
    """An inference engine that its rollouts share evenly, each at most as fast as one alone may be."""

    def __init__(self, options: Sampler) -> None:
        self._options, self._loop = options, asyncio.get_running_loop()
        self._jobs: list[tuple[float, int, asyncio.Future[None]]] = []
        self._begun = 0
        self._served = 0.0
        """Tokens that a rollout has had that was there from the start."""
        self._at = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self.busy_s = 0.0

    async def sample(self, tokens: float) -> float:
        """Return when so many tokens are sampled, and after how many seconds."""
        self._go_on()
        asked = self._at
        self._begun += 1
        done = self._loop.create_future()
        heappush(self._jobs, (self._served + tokens, self._begun, done))
        self._wait()
        await done
        return self._at - asked

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Sample nothing in the body; what was asked for goes on after it."""
        self._go_on()
        self._is_stopped = True
        self._wait()
        try:
            yield
        finally:
            self._go_on()
            self._is_stopped = False
            self._wait()

    @property
    def _rate(self) -> float:
        return min(self._options.tokens_per_s_of_one, self._options.tokens_per_s / max(1, len(self._jobs)))

    def _go_on(self) -> None:
        passed_s, self._at = self._loop.time() - self._at, self._loop.time()
        if self._jobs and not self._is_stopped:
            self._served += passed_s * self._rate
            self.busy_s += passed_s

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._jobs and not self._is_stopped:
            left_s = max(0.0, self._jobs[0][0] - self._served) / self._rate
            self._timer = self._loop.call_later(left_s, self._finish)

    def _finish(self) -> None:
        self._go_on()
        rounding = 2e-6 * self._rate  # what the clock rounds
        while self._jobs and self._jobs[0][0] <= self._served + rounding:
            done = heappop(self._jobs)[2]
            if not done.done():
                done.set_result(None)
        self._wait()


class _Together:
    """Samples in lockstep: when every live rollout waits, and for all until the longest is done."""

    def __init__(self, sample: _Sample, live: int) -> None:
        self._sample, self._live = sample, live
        self._waiting: list[tuple[float, asyncio.Future[float]]] = []
        self._batches = set[asyncio.Task[None]]()

    async def sample(self, tokens: float) -> float:
        done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append((tokens, done))
        self._look()
        return await done

    def leave(self) -> None:
        self._live -= 1
        self._look()

    def _look(self) -> None:
        if self._waiting and len(self._waiting) == self._live:
            self._batches.add(asyncio.get_running_loop().create_task(self._batch(self._waiting)))
            self._waiting = []

    async def _batch(self, waiting: list[tuple[float, asyncio.Future[float]]]) -> None:
        took_s = max(await asyncio.gather(*(self._sample(tokens) for tokens, _ in waiting)))
        for _, done in waiting:
            if not done.done():
                done.set_result(took_s)


class Weights:
    """The versions that there are, each by a digest of everything that was learned for it."""

    def __init__(self, config: TrainConfig, kept: dict[int, str] | None = None) -> None:
        self._most = config.rollout.staleness + 1
        self.kept = dict(kept or {0: ""})

    def publish(self, version: int, learned: Iterable[Trajectory]) -> None:
        """Make the newest version after these rollouts."""
        seen = [(t.id, t.seed, t.reward, [turn.policy_version for turn in t.turns]) for t in learned]
        before = self.kept[max(self.kept)]
        self.kept[version] = hashlib.sha256(f"{before}{seen}".encode()).hexdigest()
        for old in sorted(self.kept)[: -self._most]:
            del self.kept[old]

    def mark(self, version: int) -> int:
        """Return a token that these weights alone sample; -1 for a version that is not kept."""
        return crc32(self.kept[version].encode()) >> 1 if version in self.kept else -1

    def held(self, version: int) -> int:
        """Return this version, or the oldest after it of those that are kept. Raise `PromiseBroken` where none is yet."""
        if version > max(self.kept):
            raise PromiseBroken(
                f"version {version} was asked for: got versions {sorted(self.kept)}, expected it among them"
            )
        return min(each for each in self.kept if each >= version)


@dataclass(slots=True)
class Plans:
    """Draws plans, and keeps what was played of them: a disk that outlives the process."""

    config: TrainConfig
    stored_plans: dict[int, Rollouts] = field(default_factory=dict)
    groups: dict[int, list[bytes]] = field(default_factory=dict)
    """A stream's, by number."""
    outcomes: str = ""
    """A digest of every outcome so far, from which the next plan is drawn."""

    def plan(self, step: int) -> Plan:
        """Draw a plan, by all that was observed."""
        return Plan(step, {}, self._groups(step, 0, self.config.rollout.groups_per_step), [], 0.0)

    def more(self, step: int, first: int, envs: Sequence[str], used: object) -> list[RolloutRequest]:
        """Draw further groups."""
        return self._groups(step, self.config.rollout.groups_per_step + first, len(envs))

    def _groups(self, step: int, first: int, count: int) -> list[RolloutRequest]:
        drawn = self.config.model_copy(update={"seed": derive(self.config.seed, self.outcomes)})
        tasks = [f"train/{derive(drawn.seed, step, first + number)}" for number in range(count)]
        return train_requests(drawn, "{}", step, tasks=tasks, first=first)

    def observe(self, plan: Plan, rollouts: Rollouts) -> str:
        """Move what the next plan is drawn from."""
        seen = [(t.id, t.reward) for t in rollouts.seen]
        self.outcomes = hashlib.sha256(f"{self.outcomes}{seen}".encode()).hexdigest()
        return self.outcomes

    def store(self, step: int, rollouts: Rollouts) -> None:
        """Keep a plan's rollouts."""
        self.stored_plans[step] = rollouts

    def stored(self, step: int, tally: BatchTally) -> Rollouts | None:
        """Return them, if they are kept."""
        return self.stored_plans.get(step)

    def forget(self, steps: Iterable[int]) -> None:
        """Let go of plans."""
        for step in steps:
            self.stored_plans.pop(step, None)

    def learning(self, step: int, requests: Sequence[RolloutRequest], anchors: Mapping[str, Anchor]) -> Plan:
        """Return what a step learns, of a stream's groups."""
        return Plan(step, dict(anchors), list(requests), [], 0.0)

    def keep(self, number: int, encoded: Sequence[bytes]) -> None:
        """Keep a stream's group."""
        self.groups[number] = list(encoded)

    def kept(self, number: int) -> Sequence[bytes]:
        """Return it, if it is kept."""
        return self.groups.get(number, ())

    def forget_kept(self, below: float = math.inf, *, but: Collection[int]) -> None:
        """Let go of a stream's groups with a number below `below`, but of these."""
        self.groups = {number: own for number, own in self.groups.items() if number >= below or number in but}

    def halting(self) -> AbstractContextManager[None]:
        """Keep nothing of a run that halts."""
        return nullcontext()


class SimulatedCalls:
    """`scheduler.sampling.Calls` that take what a fleet says."""

    server_end = ""

    def __init__(self, config: TrainConfig, fleet: FleetTimes, weights: Weights) -> None:
        self._config, self._fleet, self._weights = config, fleet, weights
        self.slots = [config.rollout.concurrency] * config.rollout.workers
        self.engines = [Engine(fleet.sampler) for _ in range(config.rollout.engines)]
        self._shown = self._mark = -1
        self.env_s = 0.0
        """That environments took, of all rollouts."""
        self.ended = dict[str, float]()
        """By rollout, in the order that they ended, the share that was spent sampling."""

    async def serve(self, version: int) -> int:
        """Take the time of loading a version, if it is not there."""
        held = self._weights.held(version)
        if held != self._shown:
            with ExitStack() as stopped:
                for engine in self.engines:
                    stopped.enter_context(engine.stopped())
                await _pass(self._fleet.sampler.load_s.draw(Random(derive(self._config.seed, "load", held))))
            self._shown, self._mark = held, self._weights.mark(held)
        return held

    async def fails(self) -> NoReturn:
        """Never return: simulated samplers are never lost."""
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async def judge(self, encoded: Sequence[bytes], run_folder: Path) -> Rewarded:
        """Take the time of judging."""
        seed = derive(decode(encoded[0]).seed, "judge") if encoded else 0
        await _pass(self._fleet.reward_s.draw(Random(seed)))
        return Rewarded(list(encoded))

    async def play_at(
        self, worker: int, requests: Sequence[RolloutRequest], policy_step: int
    ) -> list[list[bytes]]:
        """Play rollouts in as many slots as the worker has."""
        lanes = min(len(requests), self.slots[worker])
        sample: _Sample = self.engines[worker % len(self.engines)].sample
        together: _Together | None = None
        if self._config.rollout.batching == "lockstep" and not self._fleet.recorded:
            together = _Together(sample, lanes)
            sample = together.sample
        pending, played = iter(enumerate(requests)), dict[int, list[bytes]]()

        async def play(request: RolloutRequest) -> Trajectory:
            took, slow = self._took(request, policy_step), self._slowness(worker, policy_step)
            return await self._play(request, script_of(request, self._fleet, took, slow), policy_step, sample)

        async def lane() -> None:
            for place, request in pending:
                waits = bool(self._config.rollout.outage_s)
                tries = await attempts(request, play, self._config.filter, waits=waits)
                played[place] = [encode(each) for each in tries]
            if together:
                together.leave()

        async with asyncio.TaskGroup() as group:
            for _ in range(lanes):
                group.create_task(lane())
        return [played[place] for place in range(len(requests))]

    def _slowness(self, worker: int, step: int) -> float:
        faults = self._fleet.faults
        drawn = Random(derive(self._config.seed, "slow", worker, step)).random() if faults.slow else 1.0
        return faults.slow_factor if drawn < faults.slow else 1.0

    def _took(self, request: RolloutRequest, step: int) -> tuple[int, float, float] | None:
        if (recorded := self._fleet.recorded_at(step)) is None:
            return None
        group = int(request.group_id.rpartition("-")[2])
        place = group * self._config.rollout.group_size + request.index
        turns, sampled_s, all_s = recorded.rollouts[place % len(recorded.rollouts)]
        return turns, sampled_s, all_s + recorded.beside_s

    async def _play(self, request: RolloutRequest, script: Script, step: int, sample: _Sample) -> Trajectory:
        now, marks = asyncio.get_running_loop().time, dict[int, int]()
        begun, sampled_s = now(), 0.0

        def cut_off() -> Trajectory:
            failure = RolloutFailure(Unavailable.code, "the simulated server is away", 0)
            return record_of(request, script, step, marks or {self._shown: self._mark}).as_failed(failure)

        if not await self._reached(script.begin_s):
            return cut_off()
        for tokens, step_s in script.turns:
            marks[self._shown] = self._mark
            sampled_s += await sample(tokens)
            marks[self._shown] = self._mark
            if not await self._reached(step_s):
                return cut_off()
        if not await self._reached(script.end_s):
            return cut_off()
        self.env_s += script.env_s
        self.ended[request.id] = sampled_s / (now() - begun) if now() > begun else 0.0
        return record_of(request, script, step, marks)

    async def _reached(self, call_s: float) -> bool:
        """Take the time of a call; return whether ROCK is there after it, or within the time that a call is tried again."""
        await _pass(call_s)
        if left_s := self._away_s():
            await asyncio.sleep(min(_PATIENCE_S, left_s))
        return not self._away_s()

    def _away_s(self) -> float:
        """Return for how long ROCK is still away."""
        now = asyncio.get_running_loop().time()
        ends = [
            begin_s + for_s for begin_s, for_s in self._fleet.faults.away if begin_s <= now < begin_s + for_s
        ]
        return max(ends, default=now) - now

    async def rock_answers(self) -> bool:
        """Return whether ROCK is there."""
        return not self._away_s()

    def forget(self, rollouts: Collection[str]) -> float:
        """Let go of rollouts; return of the one that ended last the share that was spent sampling."""
        own = [one for one in self.ended if one in rollouts]
        return [self.ended.pop(one) for one in own][-1] if own else 0.0


async def _pass(seconds: float) -> None:
    if seconds:
        await asyncio.sleep(seconds)


def record_of(request: RolloutRequest, script: Script, step: int, marks: Mapping[int, int]) -> Trajectory:
    """Return the smallest record that there can be: one turn, of one token for each version that sampled some."""
    spans = tuple(VersionTokens(version, 1) for version in marks)
    count = len(spans)
    played = Trajectory(
        request.id,
        f"{request.env}@1",
        request.params_json,
        request.task_id,
        request.group_id,
        request.index,
        request.seed,
        request.start,
        first_observation="",
        turns=(
            Turn(
                0,
                None,
                _NONE,
                np.array(list(marks.values()), np.int32),
                np.zeros(count, np.float32),
                "stop",
                spans[0].version if count == 1 else spans,
            ),
        ),
        actions=("",),
        observations=("",),
        observation_hashes=(b"",),
        turn_rewards=(0.0,),
        illegal_actions=0,
        reward=float(script.won),
        passed=script.won,
        stop_reason=StopReason.TERMINATED,
        policy_step=step,
    )
    failure = RolloutFailure("env_lost", "the simulated environment was lost", 0)
    return played.as_failed(failure) if script.is_lost else played
