"""A training run in one process: the loop's `Run` over real engines and a real environment, without Ray or ROCK's server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from agent_runtime.agents.chat_loop import run_rollout
from agent_runtime.agents.oracle import record_expert
from agent_runtime.store import decode, encode
from agent_runtime.types import RolloutFailure, RolloutRequest, StopReason, Trajectory
from rock_env.env import StepResult, observation_hash
from rock_env.errors import EnvLost, ResetDivergence
from rock_env.plugins import env_params, load, load_env
from trainer.config import FilterOptions, TrainConfig
from trainer.copies.copying import Copies
from trainer.live.events import RunEvent
from trainer.live.status import Flights
from trainer.metrics import Evaluation
from trainer.processes.accounts import Accounts
from trainer.processes.learner import Learner
from trainer.processes.samplers import InferenceActor
from trainer.reward.kept import KeptAnswers
from trainer.reward.router import Rewarded, Router
from trainer.rollout.filtering import attempts
from trainer.rollout.sampler import BatchingSampler
from trainer.run import Run
from trainer.samplers.arrival import check_arrival

SMALL = {
    "env": "frozen_lake",
    "env_args": {"max_turns": 6},
    "model": "tiny",
    "engine_options": {"layers": 1, "width": 16, "heads": 2, "max_context": 256},
    "steps": 2,
    "agent": {"window_turns": 1, "system": False},
    "sampling": {"max_tokens": 2},
    "rollout": {"groups_per_step": 4, "group_size": 3, "token_budget": 12},
    "optim": {"lr": 1e-3, "minibatches": 2},
    "warmup": {"trajectories": 3, "epochs": 1, "held_out": 0.3},
    "anchors": {"scheduler": "sequential", "inject": 2, "inject_gate": "none", "inject_until": 1.0},
    "eval": {"tasks": 2, "every": 0},
}
"""A run of seconds in which everything happens that a run can report."""

Change = Callable[[Trajectory], Trajectory]


class LocalEnv:
    """One environment in this process, as the runtime uses it; `lost_at` is the step that never comes back."""

    sandbox_id = ""
    image = ""

    def __init__(self, env: str, params_json: str, lost_at: int) -> None:
        spec = load_env(env)
        self.version = spec.version
        self._params = env_params(spec, params_json)
        self._tasks = spec.tasks(self._params)
        self._env: Any = spec.factory(self._params)
        self._left = lost_at

    async def reset(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]] = (),
        resume_seed: int | None = None,
        initial_hash: bytes = b"",
    ) -> tuple[str, Mapping[str, Any], str]:
        split, _, index = task_id.rpartition("/")
        task = self._tasks.get(split, int(index))
        observation, info = self._env.reset(task, seed)
        for action, recorded in prefix:
            observation = self._env.step(action).observation
            if observation_hash(observation) != recorded:
                raise ResetDivergence(f"after {action!r} the observation differs")
        if resume_seed is not None:
            self._env.reseed(resume_seed)
        return observation, info, task.instruction

    async def step(self, action: str) -> StepResult:
        self._left -= 1
        if self._left == 0:
            raise EnvLost("the worker died")
        return self._env.step(action)

    async def evaluate(self) -> Any:
        return self._env.evaluate()

    async def close(self) -> None:
        self._env.close()


class LocalRock:
    """Makes environments; the `broken`-th of them is lost at its first step."""

    def __init__(self, broken: int) -> None:
        self._left = broken

    async def make(self, env: str, params_json: str) -> LocalEnv:
        self._left -= 1
        return LocalEnv(env, params_json, lost_at=1 if self._left == 0 else 0)


class LocalFleet:
    """What `trainer.processes.fleet.Fleet` is to a run.

    `change` spoils experts and training rollouts on their way in."""

    server_end = ""

    def __init__(self, config: TrainConfig, *, change: Change = lambda t: t, broken: int = 0) -> None:
        self._config, self._change, self._broken = config, change, broken
        spec: Any = load("ale.engines", config.engine)
        self._template = spec.template(config.model, spec.options(**config.engine_options))
        self._learner, self._engine = Learner(config), InferenceActor(config)
        self._learner.ready()
        self._engine.ready()
        self._learner.prove_to(self._engine.arrived())
        self.learns_from_rollouts = self._learner.learns_from_rollouts()
        for name in ("take_experts", "measure", "text_nll", "imitate", "load", "export"):
            setattr(self, name, getattr(self._learner, name))
        self.update, self.weights = self._learner.update, self._learner.weights
        self.sample = self._engine.sample
        self._published: dict[int, Any] = {}
        self._shown = -1
        self.slots = [config.rollout.concurrency]
        self.flights = Flights()
        self._accounts = Accounts()
        self.time_shares()

    def begin_save(self, folder: Path) -> Callable[[], object]:
        self._learner.save(folder)
        return lambda: None

    def engine_calls(self) -> list[list[tuple[float, float]]]:
        return []

    def samplers(self) -> dict[str, float]:
        return (
            {"samplers/lost": 0.0, "samplers/back": 0.0, "samplers/up": 1.0}
            if self._config.rollout.streams
            else {}
        )

    def sampler_news(self) -> list[RunEvent]:
        return []

    async def rock_answers(self) -> bool:
        return True

    async def fails(self) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    def time_shares(self) -> dict[str, float]:
        return self._accounts.shares({"policy": 0.0, "service": 0.0, "sandboxes": 0.0})

    def memory(self) -> dict[str, dict[str, int]]:
        return {}

    def publish(self, version: int, *, load: bool = True) -> None:
        self._keep(version, self._learner.publish(version))
        if load:
            self.show(version)

    def republish(self, version: int) -> None:
        self.publish(version)
        for lag in range(1, self._config.rollout.staleness + 1):
            self._keep(*self._learner.behind(lag))

    def serve_newest(self) -> None:
        self._shown = -1
        self._bring(self._learner.weights(), 0, self._learner.sent())

    def show(self, version: int) -> int:
        held = min(each for each in self._published if each >= version)
        if held != self._shown:
            self._bring(*self._published[held])
            self._shown = held
        return held

    async def serve(self, version: int) -> int:
        return self.show(version)

    def _keep(self, version: int, weights: Any) -> None:
        copied = {name: np.array(value) for name, value in weights.items()}
        self._published[version] = copied, version, self._learner.sent()
        self._shown = -1 if self._shown == version else self._shown
        for old in sorted(self._published)[: -self._config.rollout.staleness - 1]:
            del self._published[old]

    def _bring(self, weights: Any, version: int, sent: Any) -> None:
        check_arrival(sent, [self._engine.load(weights, version)], version)

    def run(self, requests: Sequence[RolloutRequest], policy_step: int) -> list[bytes]:
        attempts = self._attempts(requests, policy_step, FilterOptions(resamples=0))
        return [tries[-1] for tries in asyncio.run(attempts)]

    async def play_at(
        self, worker: int, requests: Sequence[RolloutRequest], policy_step: int
    ) -> list[list[bytes]]:
        return await self._attempts(requests, policy_step, self._config.filter)

    async def _attempts(
        self, requests: Sequence[RolloutRequest], policy_step: int, options: FilterOptions
    ) -> list[list[bytes]]:
        async def sample(batch: Any) -> Any:
            return self._engine.sample(batch)

        training = any(not request.id.startswith("eval") for request in requests)
        rock = LocalRock(self._broken if training else 0)
        sampler = BatchingSampler(sample, lockstep=False)

        async def play(request: RolloutRequest) -> Trajectory:
            played = await run_rollout(
                request, rock=rock, sampler=sampler, template=self._template, policy_step=policy_step
            )
            return played if request.id.startswith("eval") else self._change(played)

        played = await asyncio.gather(*(attempts(each, play, options) for each in requests))
        return [[encode(each) for each in tries] for tries in played]

    async def judge(self, encoded: Sequence[bytes], run_folder: Path) -> Rewarded:
        if not self._config.reward.routes:
            return Rewarded(list(encoded))
        async with Router(self._config, self._config.rollout.rock_address) as router:
            with KeptAnswers(run_folder) as kept:
                results, metrics = await router.reward([decode(data) for data in encoded], kept)
        return Rewarded([encode(trajectory) for trajectory in results], metrics)

    def record(self, requests: Sequence[RolloutRequest]) -> list[bytes]:
        async def play(request: RolloutRequest) -> Trajectory:
            spec = load_env(request.env)
            params = env_params(spec, request.params_json)
            split, _, index = request.task_id.rpartition("/")
            oracle = spec.oracle(params, spec.tasks(params).get(split, int(index)))
            return await record_expert(request, rock=LocalRock(0), oracle=oracle, template=self._template)

        return [encode(self._change(asyncio.run(play(request)))) for request in requests]


class Listening:
    """An observer that remembers what the run said."""

    stop_requested = False

    def __init__(self) -> None:
        self.said: list[str] = []
        self.events: list[RunEvent] = []

    def on_phase(self, name: str) -> None: ...

    def on_step(self, step: int, total: int, metrics: Mapping[str, float]) -> None: ...

    def on_eval(self, evaluation: Evaluation) -> None: ...

    def on_log(self, message: str) -> None:
        self.said.append(message)

    def on_event(self, event: RunEvent) -> None:
        self.events.append(event)
        self.said.append(f"note: {event.message}")


def config_of(**changes: Any) -> TrainConfig:
    """Return the small run's configuration; a section's changes are merged into it, arguments of another env are its own."""
    merged = {
        **SMALL,
        **({"env_args": {}} if "env" in changes else {}),
        **({"engine_options": {}} if "model" in changes else {}),
    }
    for name, value in changes.items():
        merged[name] = {**merged[name], **value} if isinstance(merged.get(name), dict) else value
    return TrainConfig.model_validate(merged)


def local_run(
    folder: Path,
    config: TrainConfig,
    *,
    kind: type[LocalFleet] = LocalFleet,
    copies: Copies | None = None,
    **fleet: Any,
) -> tuple[LocalFleet, list[str]]:
    """Train from the first expert to the summary; return the fleet and what the run said."""
    observer, local = Listening(), kind(config, **fleet)
    with Run(config, folder, local, observer, resume=False, copies=copies) as run:  # type: ignore[arg-type]
        run.record_experts()
        run.warm_up()
        run.evaluate_warmup()
        for step in run.remaining_steps():
            learn(run, step)
        run.finish()
    return local, observer.said


def learn(run: Run, step: int) -> None:
    """Do one step, as the loop does."""
    batch = run.batch(step)
    run.learn(batch)
    run.publish(step)
    run.report(batch)


def lost(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory as if its environment had been lost in it."""
    return replace(
        trajectory,
        reward=math.nan,
        passed=False,
        stop_reason=StopReason.FAILED,
        failure=RolloutFailure("env_lost", "The worker died.", 0),
    )


def stripped(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory as if its policy never said anything."""
    empty: tuple[Any, ...] = ()
    return replace(
        trajectory,
        turns=empty,
        actions=empty,
        observations=empty,
        observation_hashes=empty,
        turn_rewards=empty,
        turn_faults=empty,
        turn_labels=empty,
        internal_turns=empty,
        illegal_actions=0,
    )


__all__ = [
    "SMALL",
    "Listening",
    "LocalFleet",
    "config_of",
    "decode",
    "learn",
    "local_run",
    "lost",
    "stripped",
]


class Playing(LocalFleet):
    """A fleet in this process, with what the loop asks of one; `asked` is told the step whose rollouts are asked for."""

    def asked(self, step: int) -> None: ...

    def __init__(self, config: TrainConfig, ray_address: str | None, artifacts: Path) -> None:
        super().__init__(config)

    def __enter__(self) -> Playing:
        return self

    def __exit__(self, *error: object) -> None: ...

    async def play_at(
        self, worker: int, requests: Sequence[RolloutRequest], policy_step: int
    ) -> list[list[bytes]]:
        self.asked(policy_step)
        return await super().play_at(worker, requests, policy_step)
