"""How often tasks are passed, with its uncertainty: 95 % intervals, and pass@k. Pure; reads records only.

What varies is the task: an interval says where success on all tasks of the split lies, of which some were drawn. Sources:
Wilson 1927 (the score interval); Dean and Pagano 2015, doi 10.1093/jssam/smv024 (the same where observations come in
clusters, with the effective sample size of the mean over clusters); Zou and Donner 2008, doi 10.1002/sim.3095 (MOVER: a sum
of independent estimates, from their intervals); Chen et al. 2021, arXiv 2107.03374, Eq. 1 (pass@k).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from agent_runtime.types import Trajectory
from trainer.metrics import Interval

__all__ = ["combined", "interval_of", "pass_at", "passed_by_task", "powers_up_to"]

_Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


def passed_by_task(trajectories: Iterable[Trajectory]) -> dict[str, list[bool]]:
    """Return whether each episode passed, by task id; without those that failed."""
    found: dict[str, list[bool]] = {}
    for trajectory in trajectories:
        if trajectory.has_reward:
            found.setdefault(trajectory.task_id, []).append(trajectory.passed)
    return found


def interval_of(passed: Iterable[Sequence[bool]]) -> Interval:
    """Return the 95 % interval of the share of episodes that pass, from those of each task; at least one of each.

    Of one episode a task it is Wilson's. Episodes of one task tell less than as many tasks do: all count as so many as the
    variance over tasks says. Raise `ValueError` where there is no episode.
    """
    tasks = list(passed)
    total = sum(map(len, tasks))
    if not total:
        raise ValueError(
            "no episode has a verdict, and success on none is no number: got 0, expected at least 1"
        )
    mean = sum(map(sum, tasks)) / total
    variance = sum((sum(each) - mean * len(each)) ** 2 for each in tasks) / total**2
    independent = mean * (1 - mean)
    # Equal verdicts of all say nothing about how much tasks differ, nor does one task alone: then each counts once.
    if not independent or len(tasks) == 1:
        return _wilson(mean, len(tasks))
    size = min(independent / variance, total) if variance else float(total)
    return _wilson(mean, size)


def combined(parts: Sequence[tuple[float, float, Interval]]) -> Interval:
    """Return the 95 % interval of a weighted sum of independent estimates, each as (weight, estimate, its interval)."""
    mean = sum(weight * value for weight, value, _ in parts)
    below = sum((weight * (value - own.low)) ** 2 for weight, value, own in parts)
    above = sum((weight * (own.high - value)) ** 2 for weight, value, own in parts)
    return Interval(mean - math.sqrt(below), mean + math.sqrt(above))


def pass_at(k: int, passed: Iterable[Sequence[bool]]) -> float:
    """Return the mean probability that at least one of k episodes of a task passes, unbiased; NaN where no task has k.

    Of n episodes of which c pass it is 1 - C(n - c, k) / C(n, k). Tasks with fewer than k are left out.
    """
    found = [
        1 - math.comb(len(each) - sum(each), k) / math.comb(len(each), k) for each in passed if len(each) >= k
    ]
    return sum(found) / len(found) if found else math.nan


def powers_up_to(samples: int) -> tuple[int, ...]:
    """Return the k of pass@k for so many samples: powers of two, and the number itself."""
    return tuple(sorted({*(2**n for n in range(samples.bit_length())), samples})) if samples else ()


def _wilson(mean: float, size: float) -> Interval:
    spread = _Z * math.sqrt(mean * (1 - mean) / size + (_Z / (2 * size)) ** 2)
    centre, scale = mean + _Z**2 / (2 * size), 1 + _Z**2 / size
    # Rounding must not leave a mean of 0 or 1 outside.
    return Interval(
        max(min((centre - spread) / scale, mean), 0.0), min(max((centre + spread) / scale, mean), 1.0)
    )
