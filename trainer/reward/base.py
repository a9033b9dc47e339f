"""What a reward worker is: samples in, answers out, in batches, asynchronously.

Found by entry point `ale.rewards`, called by `trainer.reward.router`, which owns routing, concurrency, time limits, attempts
and what was answered before. A worker judges; it never retries, never stores, and never changes a trajectory.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

from agent_runtime.types import Trajectory
from rock_env.spec import TaskSpec

__all__ = ["Answer", "NoAnswer", "RewardContext", "RewardSpec", "RewardWorker", "Sample", "WorkerOptions"]


class WorkerOptions(BaseModel):
    """Base of a worker's options: frozen, unknown names refused, a docstring under each field."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @property
    def gives_turn_rewards(self) -> bool:
        """Return whether the answers are known beforehand to hold rewards per turn."""
        return False

    @property
    def fingerprint(self) -> str:
        """Return what answers hang on that neither version nor options say, such as a file: others are not used again."""
        return ""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One rollout to judge. `digest` covers all that a worker may look at: see `content`."""

    trajectory: Trajectory
    task: TaskSpec
    digest: str

    @staticmethod
    def of(trajectory: Trajectory, task: TaskSpec, *, asked: str) -> Sample:
        """Return the sample; `asked` says what of whom: the worker, its version and its options, as canonical text."""
        text = json.dumps([asked, content(trajectory, task)], ensure_ascii=False, separators=(",", ":"))
        return Sample(trajectory, task, hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest())


def content(trajectory: Trajectory, task: TaskSpec) -> list[Any]:
    """Return what was said and seen, and the environment's verdict: equal contents get one answer.

    Ids, seeds, tokens, log-probabilities and times are not in it: a worker must not look at them.
    """
    t, start = trajectory, trajectory.start
    files = hashlib.sha256(repr(task.files).encode()).hexdigest()
    return [
        [t.env, t.params_json, task.id, task.instruction, task.payload, files],
        [start.first_observation, *((turn.action, turn.observation) for turn in start.prefix)],
        [t.first_observation, t.actions, t.observations, t.turn_faults],
        [repr(t.reward), [repr(reward) for reward in t.turn_rewards], t.passed, t.stop_reason],
    ]


@dataclass(frozen=True, slots=True)
class Answer:
    """A worker's verdict on one sample. What it leaves out (None) stays as the environment said it."""

    reward: float | None = None
    """The outcome."""
    turn_rewards: tuple[float, ...] | None = None
    """One per turn of the trajectory; those of a replayed prefix have none."""
    raw: str = ""
    """The whole answer as it came."""
    by: str = ""
    """Who gave it, beside the worker: the model's name as the endpoint states it."""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __post_init__(self) -> None:
        given = [*(self.turn_rewards or ()), *(() if self.reward is None else (self.reward,))]
        if not all(map(math.isfinite, given)):
            raise ValueError(f"a reward worker answered {self}, expected finite numbers. Fix the worker.")


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why a sample has no verdict: data, not a crash, and never a reward of 0."""

    code: Literal["reward_unanswered", "reward_unreadable"]
    """Nothing came; or something that is no verdict."""
    message: str
    again: bool
    """Whether to ask once more makes sense."""
    wait_s: float = 0.0
    """The least time to wait before that, where the other side named one."""
    raw: str = ""
    by: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class RewardWorker(AbstractAsyncContextManager["RewardWorker"], Protocol):
    """Judges samples. Entered once, before the first question; its process may be ended at any time."""

    batch: int
    """Most samples of one call."""
    alone: bool
    """Whether it takes one call at a time."""

    async def reward(self, samples: Sequence[Sample], attempt: int) -> Sequence[Answer | NoAnswer]:
        """Return one answer per sample, in order; `attempt` counts from 0. May be cancelled at the time limit.

        Raise `ConfigError` where the run must stop: no sample can ever be judged (a key that is refused), or this worker is
        broken. What another attempt may answer is a `NoAnswer` with `again`, and only that.
        """
        ...


@dataclass(frozen=True, slots=True)
class RewardContext:
    """What a worker gets beside its options."""

    rock_address: str
    """The run's ROCK server."""
    seed: int
    """Of the run."""
    time_limit_s: float
    """Of one attempt."""


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """A reward plugin: the value of an `ale.rewards` entry point."""

    name: str
    summary: str
    version: str
    """Changes whenever the same sample may get another answer: answers kept under another version are not used."""
    options: type[WorkerOptions]
    build: Callable[[Any, RewardContext], RewardWorker]
    """Takes an instance of `options`. Raise `InvalidArgument` or `ConfigError` where they cannot work."""
    runs_model: bool = False
    """Whether it holds a model of its own, and so wants a share of the accelerator."""
