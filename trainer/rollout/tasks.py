"""Which rollouts a step asks for: tasks, groups, anchors and seeds, as `RolloutRequest`s.

Pure functions of the configuration, the step and the anchors: a resumed run asks for the same.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from agent_runtime.types import AgentConfig, RolloutRequest, SamplingParams, Start, Trajectory
from rock_env.spec import TaskSource
from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.rollout.anchors import Anchor
from trainer.seeds import derive

__all__ = [
    "agent_of",
    "anchored_groups",
    "eval_requests",
    "expert_requests",
    "is_sample",
    "sample_requests",
    "task_ids",
    "train_requests",
]

_SAMPLES = "eval-samples-"


def task_ids(source: TaskSource, split: str, count: int, seed: int) -> list[str]:
    """Draw `count` task ids of `split`, without repetition where there are enough.

    Raise `ConfigError` where there is none: success on no task is no number.
    """
    total = source.count(split)
    if count and not total:
        found = ", ".join(f"{name} {source.count(name)}" for name in source.splits)
        raise ConfigError(
            f"the split {split!r} has no task with these env_args: got {found}, expected at least one. Name another "
            "split (of a run: train_split, eval.split, eval.apart), or other env_args."
        )
    rng = random.Random(seed)
    if count <= total:
        indices: Sequence[int] = rng.sample(range(total), count)
    else:
        indices = [*range(total), *(rng.randrange(total) for _ in range(count - total))]
    return [f"{split}/{index}" for index in indices]


def anchored_groups(config: TrainConfig, groups: int | None = None) -> int:
    """Return how many of a step's groups may begin at an anchor; the others begin at the task's own start.

    `groups` are those of one of several environments.
    """
    count = config.rollout.groups_per_step if groups is None else groups
    return math.floor(count * (1 - config.anchors.start_share))


def train_requests(
    config: TrainConfig,
    params_json: str,
    step: int,
    *,
    tasks: Sequence[str],
    anchors: Sequence[Anchor] = (),
    first: int = 0,
) -> list[RolloutRequest]:
    """Return the step's requests: a group for each anchor, then a group from the true start for each task.

    Groups are numbered from `first`.
    """
    requests = []
    for number in range(len(anchors) + len(tasks)):
        anchor = anchors[number] if number < len(anchors) else None
        task_id = anchor.expert.task_id if anchor else tasks[number - len(anchors)]
        group = f"{step:06d}-{first + number:04d}"
        for index in range(config.rollout.group_size):
            identity = f"{group}-{index:03d}"
            seed = derive(config.seed, "train", identity)
            start = anchor.start(seed) if anchor else Start(env_seed=seed)
            requests.append(
                _request(
                    config,
                    params_json,
                    identity,
                    task_id=task_id,
                    group=group,
                    index=index,
                    start=start,
                    temperature=config.sampling.temperature,
                )
            )
    return requests


def eval_requests(
    config: TrainConfig, params_json: str, step: int, tasks: Sequence[str], *, label: str = ""
) -> list[RolloutRequest]:
    """Return one request per held-out task; their seeds are the same at every evaluation."""
    return [
        _request(
            config,
            params_json,
            f"eval-{step:06d}-{label}{number:05d}",
            task_id=task_id,
            group=f"eval-{label}{number:05d}",
            index=0,
            start=Start(env_seed=derive(config.seed, "eval", number)),
            temperature=config.eval.temperature,
        )
        for number, task_id in enumerate(tasks)
    ]


def sample_requests(
    config: TrainConfig, params_json: str, step: int, tasks: Sequence[str], *, label: str = ""
) -> list[RolloutRequest]:
    """Return a group of `eval.samples` requests for each held-out task.

    Environments' seeds are the same at every evaluation, those of sampling are not.
    """
    return [
        _request(
            config,
            params_json,
            f"eval-{step:06d}-{label}{number:05d}-{index:04d}",
            task_id=task_id,
            group=f"{_SAMPLES}{label}{number:05d}",
            index=index,
            start=Start(env_seed=derive(config.seed, "eval samples", number, index)),
            temperature=config.eval.samples_temperature,
        )
        for number, task_id in enumerate(tasks)
        for index in range(config.eval.samples)
    ]


def is_sample(trajectory: Trajectory) -> bool:
    """Return whether the episode was asked for by `sample_requests`."""
    return trajectory.group_id.startswith(_SAMPLES)


def expert_requests(
    config: TrainConfig, params_json: str, tasks: Sequence[str], *, label: str = ""
) -> list[RolloutRequest]:
    """Return one request per task for the oracle to play."""
    return [
        _request(
            config,
            params_json,
            f"expert-{label}{number:05d}",
            task_id=task_id,
            group=f"expert-{label}{number:05d}",
            index=0,
            start=Start(env_seed=derive(config.seed, "expert", number)),
        )
        for number, task_id in enumerate(tasks)
    ]


def agent_of(config: TrainConfig) -> AgentConfig:
    """Return the agent's settings as the agent takes them."""
    return AgentConfig(**config.agent.model_dump(exclude={"name", "session_tokens"}))


def _request(
    config: TrainConfig,
    params_json: str,
    identity: str,
    *,
    task_id: str,
    group: str,
    index: int,
    start: Start,
    temperature: float = 1.0,
) -> RolloutRequest:
    return RolloutRequest(
        id=identity,
        env=config.env,
        params_json=params_json,
        task_id=task_id,
        group_id=group,
        index=index,
        seed=derive(config.seed, "sample", identity),
        agent=agent_of(config),
        sampling=SamplingParams(
            temperature=temperature,
            max_tokens=config.sampling.max_tokens,
            thinking_tokens=config.sampling.thinking_tokens,
        ),
        start=start,
        time_limit_s=config.rollout.time_limit_s,
    )
