"""Whether a run is healthy, by its newest steps, and what differs between two steps: from the columns of its metrics.

The bounds are those by which a run names what starves it (`trainer.teaching`) or halts (`guard.mismatch`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from trainer.teaching import COLLAPSED, FELL, KNOWN, LEAN_SHARE, LEAN_STEPS, SOLVED

__all__ = ["IS_TIME", "between", "signs"]

Values = Mapping[str, Sequence[float]]
"""By name, a number of every step; NaN where it has none."""
IS_TIME = re.compile(r"_s$|_s/|^(time|busy|bound|outages|samplers|restarts|copies)\b|latency")
_MISMATCH, _LOST = 0.05, 0.1
"""Nats per token between learner and sampler, as `guard.mismatch` has it; share of rollouts that failed."""
_LARGEST = 1e300
"""Of numbers that are reckoned with: sums and differences of larger ones may be none."""
_AROUND, _MOST_MOVED, _MOST_SIZE = 2, 40, 999.0
"""Steps on both sides over which a number is a mean; numbers that are told; the largest size that is."""


def signs(train: Values) -> dict[str, Any]:
    """Return how many checks could be made of the newest steps, and a sentence for each that found something wrong."""
    found = [told for check in _CHECKS if (told := check(train)) is not None]
    return {"checks": len(found), "bad": [each for each in found if each]}


def _is_number(value: float) -> bool:
    return abs(value) <= _LARGEST


def _all(train: Values, name: str) -> list[float]:
    return list(filter(_is_number, train.get(name, ())))


def _newest(train: Values, name: str) -> list[float]:
    """Return the numbers that the newest steps have."""
    return list(filter(_is_number, train.get(name, ())[-LEAN_STEPS:]))


def _is_solved(train: Values) -> bool:
    return bool(success := _newest(train, "success")) and success[-1] >= SOLVED


def _loss(train: Values) -> str | None:
    if not train.get("loss"):
        return None
    updates = _newest(train, "updates")
    is_none = not math.isfinite(train["loss"][-1]) and bool(updates) and updates[-1] > 0
    return "the loss of the last step is no number" if is_none else ""


def _teaching(train: Values) -> str | None:
    name = "credit/groups" if "credit/groups" in train else "mixed_groups"
    of = train.get("groups", ())[-LEAN_STEPS:]
    # Where every credit was dropped the step has no such number: no group taught.
    steps = [
        (one if _is_number(one) else 0.0, each)
        for one, each in zip(train.get(name, ())[-len(of) :], of, strict=False)
    ]
    steps = [(one, each) for one, each in steps if _is_number(each)]
    if not steps:
        return None
    lean = len(steps) == LEAN_STEPS and all(one <= LEAN_SHARE * each for one, each in steps)
    return (
        f"no more than {max(steps)[0]:.0f} of {steps[-1][1]:.0f} groups taught in {LEAN_STEPS} steps"
        if lean
        else ""
    )


def _entropy(train: Values) -> str | None:
    if not (entropy := _all(train, "entropy")):
        return None
    fell = entropy[-1] < COLLAPSED * entropy[0] and not _is_solved(train)
    return (
        f"entropy is {entropy[-1]:.3g}, at first it was {entropy[0]:.3g}: little is tried any more"
        if fell
        else ""
    )


def _success(train: Values) -> str | None:
    if not (success := _all(train, "success")):
        return None
    best, now = max(success), max(success[-LEAN_STEPS:])
    return f"success is {now:.2f}, at best it was {best:.2f}" if best > KNOWN and now < FELL * best else ""


def _mismatch(train: Values) -> str | None:
    if not (apart := _newest(train, "mismatch/token_abs")) or any(_newest(train, "lag/max")):
        return None  # an older version sampled: it differs as it should
    said = f"learner and sampler differ by {fmean(apart):.3g} nats per token: what is learned is not what was sampled"
    return said if fmean(apart) > _MISMATCH else ""


def _failures(train: Values) -> str | None:
    lost, played = sum(_newest(train, "faults/infrastructure")), sum(_newest(train, "filter/played"))
    if not played:
        return None
    return f"{lost / played:.0%} of the rollouts failed to run" if lost > _LOST * played else ""


_CHECKS: Sequence[Callable[[Values], str | None]] = (
    _loss,
    _teaching,
    _entropy,
    _success,
    _mismatch,
    _failures,
)


def between(steps: Sequence[int], train: Values, first: int | None, last: int | None) -> dict[str, Any]:
    """Return what differs between two steps, by default the first and the last: numbers as means around each.

    The size of a difference is how many times the usual difference of two steps in a row it is; times are left out.
    """
    if not steps:
        return {"first": None, "last": None, "moved": []}
    at, to = (_nearest(steps, step, end) for step, end in ((first, 0), (last, -1)))
    moved: list[dict[str, Any]] = []
    for name, column in train.items():
        one, other = (_mean(column[max(0, place - _AROUND) : place + _AROUND + 1]) for place in (at, to))
        if IS_TIME.search(name) or not name.isprintable() or not _is_number(other - one) or one == other:
            continue
        known = list(filter(_is_number, column))
        usual = median(abs(after - before) for before, after in pairwise(known))
        size = min(_MOST_SIZE, abs(other - one) / usual) if usual else _MOST_SIZE
        moved.append({"name": name, "first": one, "last": other, "size": size})
    moved.sort(key=lambda each: -each["size"])
    return {"first": steps[at], "last": steps[to], "moved": moved[:_MOST_MOVED]}


def _nearest(steps: Sequence[int], step: int | None, end: int) -> int:
    if step is None:
        return end % len(steps)
    return min(range(len(steps)), key=lambda place: abs(steps[place] - step))


def _mean(values: Sequence[float]) -> float:
    known = list(filter(_is_number, values))
    return fmean(known) if known else math.nan
