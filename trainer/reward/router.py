"""Who rewards which rollout: routing, questions asked at once, attempts, and what becomes of the answers.

With no route it changes nothing. A sample without an answer becomes a failed trajectory, which the token ledger counts
as `failed/CODE`; its reward is NaN, never 0.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from time import perf_counter
from types import TracebackType
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from agent_runtime.types import RewardSource, RolloutFailure, Trajectory
from rock_env.plugins import load
from rock_env.spec import TaskSpec
from trainer.config import RewardRoute, TrainConfig
from trainer.environments import name_of, open_environments
from trainer.errors import BatchError, ConfigError
from trainer.reward.base import Answer, NoAnswer, RewardContext, RewardSpec, RewardWorker, Sample
from trainer.reward.kept import Kept, KeptAnswers

__all__ = ["Rewarded", "Router", "check_learned", "fits", "reward_spec", "rewarded", "route_fields"]

_WAIT = wait_random_exponential(multiplier=0.5, max=30)
"""Between attempts: drawn up to 0.5 s, 1 s, 2 s …, so that a crowd that was turned away does not come back at once."""


@dataclass(frozen=True, slots=True)
class Rewarded:
    """A step's trajectories with their rewards, in order, and what judging them cost."""

    encoded: list[bytes]
    metrics: dict[str, float] = field(default_factory=dict)


class _Again(Exception):
    """Some samples of a batch are to be asked once more, `wait_s` from now at the earliest."""

    def __init__(self, wait_s: float) -> None:
        super().__init__()
        self.wait_s = wait_s


@dataclass(slots=True)
class _Counts:
    """What a step's questions cost."""

    asked: int = 0
    reused: int = 0
    failed: int = 0
    retries: int = 0
    latency_s: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    completion_tokens: int = 0


def reward_spec(name: str) -> RewardSpec:
    """Return the installed reward worker of this name. Raise `UnknownName`, or `ConfigError` for a wrong object."""
    spec = load("ale.rewards", name)
    if not isinstance(spec, RewardSpec):
        raise ConfigError(
            f"the reward plugin {name!r} is not a RewardSpec: got {type(spec).__name__}. Its entry point must name an "
            "object of type trainer.reward.base.RewardSpec."
        )
    return spec


def check_learned(config: TrainConfig, worker: str) -> None:
    """Raise `ConfigError` where the algorithm does not look at rewards per turn: `worker` would be paid for in vain."""
    if config.algo_options.get("turn_rewards"):
        return
    remedy = (
        "Set algo_options.turn_rewards=true."
        if "turn_rewards" in config.algo_options
        else "Ask for the outcome only, or choose an algorithm with the option turn_rewards (docs/rewards.md)."
    )
    raise ConfigError(
        f"reward worker {worker!r} gives rewards per turn, of which {config.algo!r} as configured would learn nothing. "
        f"{remedy}"
    )


def fits(route: RewardRoute, fields: Mapping[str, str]) -> bool:
    """Return whether all of a route's patterns fit."""
    return all(name in fields and fnmatchcase(fields[name], pattern) for name, pattern in route.match.items())


def route_fields(env: str, task: TaskSpec) -> Mapping[str, str]:
    """Return what routes may match: `env`, `split`, and the payload's own fields where it is a JSON object."""
    try:
        payload = json.loads(task.payload)
    except ValueError:
        payload = None
    own = payload if isinstance(payload, dict) else {}
    fields = {name: str(value) for name, value in own.items() if isinstance(value, str | int | float)}
    return {**fields, "env": env, "split": task.split}


def rewarded(trajectory: Trajectory, answer: Answer, source: RewardSource, turn_weight: float) -> Trajectory:
    """Return the trajectory with the answer's rewards; what the answer leaves out stays as it was.

    `passed` stays the environment's: success means the same in training and evaluation. Raise `BatchError` for an answer
    that has not one reward per turn.
    """
    turns = answer.turn_rewards
    if turns is not None and len(turns) != len(trajectory.turns):
        raise BatchError(
            f"reward worker {source.worker!r} gave {len(turns)} rewards for the {len(trajectory.turns)} turns of trajectory "
            f"{trajectory.id!r}. Nothing was learned from this step: fix the worker."
        )
    return replace(
        trajectory,
        reward=trajectory.reward if answer.reward is None else answer.reward,
        turn_rewards=trajectory.turn_rewards if turns is None else tuple(turn_weight * r for r in turns),
        reward_source=source,
    )


class _Route:
    """One configured worker: whom it rewards, and the worker itself."""

    def __init__(self, route: RewardRoute, context: RewardContext) -> None:
        spec = reward_spec(route.worker)
        options = spec.options.model_validate(route.options)
        self.route, self.spec = route, spec
        asked = [spec.name, spec.version, options.model_dump(mode="json")]
        asked += [options.fingerprint] if options.fingerprint else []
        self.asked = json.dumps(asked, sort_keys=True)
        self.worker: RewardWorker = spec.build(options, context)
        self.turn = asyncio.Semaphore(1) if self.worker.alone else None


class Router:
    """All routes of a run. Enter it on the event loop that asks; entering opens every worker."""

    def __init__(self, config: TrainConfig, rock_address: str) -> None:
        self._config, self._options = config, config.reward
        context = RewardContext(rock_address, config.seed, config.reward.time_limit_s)
        self._routes = [_Route(route, context) for route in config.reward.routes]
        self._open = asyncio.Semaphore(config.reward.concurrency)
        self._tasks = {each.name: each.source for each in open_environments(config)}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Router:
        async with AsyncExitStack() as stack:
            for route in self._routes:
                await stack.enter_async_context(route.worker)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def reward(
        self, trajectories: Sequence[Trajectory], kept: KeptAnswers
    ) -> tuple[list[Trajectory], dict[str, float]]:
        """Return the trajectories with their rewards, in order, and what it cost under the names of docs/metrics.md.

        Failed rollouts, and those whose policy said nothing, are not judged. Raise `ConfigError` where a worker can judge
        nothing at all, `BatchError` for a worker that breaks its contract, `RunFolderError` for a full disk.
        """
        began_s, counts = perf_counter(), _Counts()
        places: dict[str, list[int]] = {}
        samples: dict[str, tuple[_Route, Sample]] = {}
        for place, trajectory in enumerate(trajectories):
            if trajectory.has_reward and trajectory.sampled_tokens and (found := self._route(trajectory)):
                route, sample = found
                places.setdefault(sample.digest, []).append(place)
                samples[sample.digest] = route, sample
        known = {digest: line for digest in samples if (line := kept.get(digest))}
        counts.reused = len(known)
        new = {digest: entry for digest, entry in samples.items() if digest not in known}
        given: dict[str, Kept | NoAnswer] = {**known, **await self._ask_all(new, kept, counts)}
        results = list(trajectories)
        for digest, answer in given.items():
            for place in places[digest]:
                results[place] = self._applied(trajectories[place], samples[digest][0], digest, answer)
        judged = [results[place] for several in places.values() for place in several]
        return results, {**_metrics(judged, counts), "reward_s": perf_counter() - began_s}

    def _route(self, trajectory: Trajectory) -> tuple[_Route, Sample] | None:
        split, _, index = trajectory.task_id.rpartition("/")
        env = name_of(trajectory)
        task = self._tasks[env].get(split, int(index))
        fields = route_fields(env, task)
        route = next((each for each in self._routes if fits(each.route, fields)), None)
        return None if route is None else (route, Sample.of(trajectory, task, asked=route.asked))

    async def _ask_all(
        self, samples: Mapping[str, tuple[_Route, Sample]], kept: KeptAnswers, counts: _Counts
    ) -> dict[str, Kept | NoAnswer]:
        """Put every sample to its worker, batch by batch; keep each answer as it comes."""
        given: dict[str, Kept | NoAnswer] = {}

        async def ask(route: _Route, batch: Sequence[Sample]) -> None:
            async with AsyncExitStack() as turns:
                if route.turn is not None:
                    await turns.enter_async_context(route.turn)
                await turns.enter_async_context(self._open)
                began_s = perf_counter()
                answers = await self._attempts(route, batch, counts)
                latency_s = perf_counter() - began_s
            for sample, answer in zip(batch, answers, strict=True):
                counts.latency_s.append(latency_s)
                if isinstance(answer, NoAnswer):
                    given[sample.digest] = answer
                    continue
                given[sample.digest] = line = Kept(sample.digest, route.spec.name, latency_s, answer)
                kept.add(line)

        try:
            async with asyncio.TaskGroup() as group:
                for route in self._routes:
                    own = [sample for its_route, sample in samples.values() if its_route is route]
                    for first in range(0, len(own), route.worker.batch):
                        group.create_task(ask(route, own[first : first + route.worker.batch]))
        except ExceptionGroup as several:  # each is a reason to stop; the first says enough
            raise several.exceptions[0] from several
        counts.asked, counts.failed = len(given), sum(isinstance(a, NoAnswer) for a in given.values())
        return given

    async def _attempts(
        self, route: _Route, batch: Sequence[Sample], counts: _Counts
    ) -> list[Answer | NoAnswer]:
        """Ask until all are answered or every attempt is used up; only what may be answered later is asked again."""
        found: list[Answer | NoAnswer] = [NoAnswer("reward_unanswered", "not asked yet.", again=True)] * len(
            batch
        )
        number = 0

        async def attempt() -> None:
            nonlocal number
            left = [i for i, answer in enumerate(found) if isinstance(answer, NoAnswer) and answer.again]
            counts.retries += len(left) if number else 0
            answers = await self._ask(route, [batch[i] for i in left], number)
            number += 1
            for i, answer in zip(left, answers, strict=True):
                found[i] = answer
                counts.prompt_tokens += answer.prompt_tokens
                counts.completion_tokens += answer.completion_tokens
            waits = [a.wait_s for a in found if isinstance(a, NoAnswer) and a.again]
            if waits:
                raise _Again(max(waits))

        policy = AsyncRetrying(
            retry=retry_if_exception_type(_Again),
            stop=stop_after_attempt(self._options.attempts),
            wait=_wait_s,
            reraise=True,
        )
        with suppress(_Again):  # the attempts are used up: `found` says of each sample why
            await policy(attempt)
        return found

    async def _ask(self, route: _Route, batch: Sequence[Sample], attempt: int) -> Sequence[Answer | NoAnswer]:
        """Ask once, within the time limit. Raise `BatchError` for a worker that answers something else."""
        limit_s = self._options.time_limit_s
        try:
            async with asyncio.timeout(limit_s) as scope:
                answers = await route.worker.reward(batch, attempt)
        except TimeoutError:
            if not scope.expired():
                raise
            message = (
                f"reward worker {route.spec.name!r} took longer than reward.time_limit_s={limit_s:g} for {len(batch)} "
                "samples. Raise it, or lower the worker's batch or reward.concurrency."
            )
            return [NoAnswer("reward_unanswered", message, again=True)] * len(batch)
        kinds = [type(answer).__name__ for answer in answers]
        if len(kinds) != len(batch) or not {"Answer", "NoAnswer"}.issuperset(kinds):
            raise BatchError(
                f"reward worker {route.spec.name!r} gave {kinds} for {len(batch)} samples, expected an Answer or NoAnswer "
                "for each: fix the worker."
            )
        return answers

    def _applied(
        self, trajectory: Trajectory, route: _Route, digest: str, answer: Kept | NoAnswer
    ) -> Trajectory:
        own = answer if isinstance(answer, NoAnswer) else answer.answer
        source = RewardSource(
            worker=route.spec.name,
            version=f"{route.spec.version}/{own.by}" if own.by else route.spec.version,
            digest=digest,
            raw=own.raw,
            latency_s=math.nan if isinstance(answer, NoAnswer) else answer.latency_s,
            prompt_tokens=own.prompt_tokens,
            completion_tokens=own.completion_tokens,
            env_reward=trajectory.reward,
            env_turn_rewards=trajectory.turn_rewards,
        )
        if isinstance(own, Answer):
            if own.turn_rewards is not None:
                check_learned(self._config, route.spec.name)
            return rewarded(trajectory, own, source, route.route.turn_weight)
        failure = RolloutFailure(own.code, own.message, turn=len(trajectory.turns))
        return replace(trajectory.as_failed(failure), reward_source=source)


def _wait_s(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    least_s = error.wait_s if isinstance(error, _Again) else 0.0
    return max(least_s, _WAIT(state))


def _metrics(judged: Sequence[Trajectory], counts: _Counts) -> dict[str, float]:
    metrics: dict[str, Any] = {
        "reward/judged": len(judged),
        "reward/asked": counts.asked,
        "reward/reused": counts.reused,
        "reward/failed": counts.failed,
        "reward/retries": counts.retries,
        "reward/prompt_tokens": counts.prompt_tokens,
        "reward/completion_tokens": counts.completion_tokens,
    }
    if counts.latency_s:
        metrics["reward/latency_mean_s"] = sum(counts.latency_s) / len(counts.latency_s)
        metrics["reward/latency_max_s"] = max(counts.latency_s)
    done = [t for t in judged if t.has_reward]
    if done:
        metrics["reward/env_distance"] = sum(abs(t.reward - t.env_reward) for t in done) / len(done)
        metrics["reward/turn_mean"] = sum(sum(t.turn_rewards) for t in done) / sum(len(t.turns) for t in done)
    return {name: float(value) for name, value in metrics.items()}
