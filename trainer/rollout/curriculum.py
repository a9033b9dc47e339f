"""What is learned first, and which tasks are drawn: positive outcomes before negative ones, tasks of intermediate pass rate.

Pure functions of the configuration, the step and the pass rates that the run's state holds, so a resumed run draws what
the uninterrupted one would have drawn.

A task's outcomes are Bernoulli with a Beta posterior. Its prior is worth two outcomes at the pass rate m of all known tasks
together: Beta(2 m + passed, 2 (1 - m) + failed). Tasks are drawn without replacement with weights
`E[p (1 - p)] = a b / ((a + b) (a + b + 1))`: the variance of an outcome, which is what a group can teach. It is
2 m (1 - m) / 3 for a task never seen, and goes towards 1/4 for one known to pass half of the time and towards 0 for one
known to pass always or never. Where most tasks pass, one that failed is thus drawn far more often than one that passed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from agent_runtime.types import Trajectory
from rock_env.spec import TaskSource
from trainer.algo.base import Credit
from trainer.config import CurriculumOptions, TrainConfig
from trainer.rollout.tasks import task_ids
from trainer.seeds import derive

__all__ = [
    "LONG_NEGATIVE",
    "MOST_TASKS",
    "POSITIVES_ONLY",
    "PassRates",
    "draw_tasks",
    "mask_negatives",
    "observe",
    "outcome_variance",
]

PassRates = dict[str, list[float]]
"""Task id -> [passed, failed], faded; the task visited last stands last."""

LONG_NEGATIVE = "long negative"
"""Reason of a trajectory without positive outcome that is longer than `filter.negative_tokens`."""
POSITIVES_ONLY = "positives only"
"""Reason of a trajectory without positive outcome in the steps that learn positive ones only."""

MOST_TASKS = 4096
"""Tasks whose pass rate is kept: bounds a checkpoint, and what one draw weighs, where tasks are generated without end."""


def draw_tasks(
    source: TaskSource,
    split: str,
    count: int,
    seed: int,
    *,
    rates: Mapping[str, list[float]],
    options: CurriculumOptions,
    without: Collection[str] = (),
) -> list[str]:
    """Draw `count` task ids of `split`, without repetition where there are enough, those in `without` after all others.

    By pass rate, as many tasks never seen as there are known ones compete with them; all, where there are few.
    """
    wanted = max(count, min(count + len(without), source.count(split)))
    if options.tasks == "uniform":
        drawn = task_ids(source, split, wanted, seed)
    else:
        drawn = _by_pass_rate(source, split, wanted, seed, rates)
    return sorted(drawn, key=lambda task_id: task_id in without)[:count]


def _by_pass_rate(
    source: TaskSource, split: str, count: int, seed: int, rates: Mapping[str, list[float]]
) -> list[str]:
    total = source.count(split)
    known = [task_id for task_id in rates if task_id.rpartition("/")[0] == split]
    fresh = total if total <= MOST_TASKS else min(total, max(count, len(known)))
    unseen = [task_id for task_id in task_ids(source, split, fresh, seed) if task_id not in rates]
    candidates = [*known, *unseen]
    if not candidates:
        return []
    weights = outcome_variance([rates.get(task_id, [0.0, 0.0]) for task_id in candidates])
    rng = np.random.default_rng(derive(seed, "pass rate"))
    # The largest of log(u)/w are a draw without replacement by weight (Efraimidis and Spirakis 2006).
    order = np.argsort(-np.log(rng.random(len(candidates))) / weights, kind="stable")[:count].tolist()
    if count > len(candidates):
        order += rng.choice(len(candidates), count - len(candidates), p=weights / weights.sum()).tolist()
    return [candidates[index] for index in order]


def outcome_variance(counts: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Return the expected variance of each task's outcome, given its [passed, failed]; the prior is of them all."""
    seen = np.array(counts, np.float64)
    passed, failed = 1.0 + seen.sum(axis=0)
    a, b = (seen + 2.0 * np.array([passed, failed]) / (passed + failed)).T
    variance: NDArray[np.float64] = a * b / ((a + b) * (a + b + 1))
    return variance


def observe(rates: PassRates, trajectories: Sequence[Trajectory], options: CurriculumOptions) -> None:
    """Add the outcomes of rollouts from their tasks' own start; those that failed say nothing of a task."""
    if options.tasks == "uniform":
        return
    visited: dict[str, list[float]] = {}
    for trajectory in trajectories:
        if trajectory.has_reward:
            visited.setdefault(trajectory.task_id, [0.0, 0.0])[0 if trajectory.passed else 1] += 1
    for task_id, (passed, failed) in visited.items():
        before = rates.pop(task_id, [0.0, 0.0])
        rates[task_id] = [before[0] * options.memory + passed, before[1] * options.memory + failed]
    for task_id in list(rates)[:-MOST_TASKS]:
        del rates[task_id]


def mask_negatives(
    trajectories: Sequence[Trajectory], credits: Sequence[Credit], config: TrainConfig, step: int
) -> list[Credit]:
    """Return the credits with those weighing 0 that learning step `step` does not learn: negatives too early, or too long.

    The trajectory stays in its group's baseline and in every divisor, so that nothing else counts more for it. By the raw
    outcome, as IPA tells T+ from T-.
    """
    return [
        _masked(credit, reason) if (reason := _unlearned(trajectory, credit, config, step)) else credit
        for trajectory, credit in zip(trajectories, credits, strict=True)
    ]


def _unlearned(trajectory: Trajectory, credit: Credit, config: TrainConfig, step: int) -> str:
    if credit.dropped or credit.positive or trajectory.is_expert:
        return ""
    share = config.curriculum.positive_only
    if share and step <= share * config.steps:
        return POSITIVES_ONLY
    longest = config.filter.negative_tokens
    return LONG_NEGATIVE if longest and trajectory.sampled_tokens > longest else ""


def _masked(credit: Credit, reason: str) -> Credit:
    weighed = {int(turn): reason for turn in np.flatnonzero(credit.advantage_K)}
    return replace(credit, advantage_K=np.zeros_like(credit.advantage_K), masked={**credit.masked, **weighed})
