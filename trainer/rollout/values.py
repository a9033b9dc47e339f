"""Prefix values: how often the policy succeeds from each turn of an expert, and after which turn success jumps.

Plain numbers that serialise; nothing here draws or knows a trajectory. Source: arXiv 2512.24873 section 3.2.4.4 (V(k),
crucial chunks); the estimator and the bound are this project's.

V of a turn is success when the turns before it are replayed and the policy plays on: V(k) of docs/ipa.md section 4, for k =
turn + 1. After the expert's last turn it is 1: the expert succeeded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import msgspec

__all__ = ["MIN_ROLLOUTS", "Tally", "crucial_turns", "jumps", "rise_bound"]

MIN_ROLLOUTS = 8
"""Rollouts from an anchor before anything is decided about it (docs/ipa.md section 4)."""
_JUMP = 0.2  # docs/ipa.md section 4: a fork is where the lower 90 % bound of V(f+1) - V(f) exceeds this
_Z = 1.2816  # the normal distribution's 90 % quantile: the bound is one-sided


class Tally(msgspec.Struct):
    """Rollouts that stood at one turn of an expert with its history, and went on by themselves."""

    passed: float = 0.0
    rollouts: float = 0.0
    dry: int = 0
    """Rollouts since the last success, those with a hint included: the gate of Eq. 10."""

    def add(self, passed: bool, *, hinted: bool = False) -> None:
        """Count a rollout. One that had a hint says nothing about success without."""
        self.dry = 0 if passed else self.dry + 1
        if not hinted:
            self.passed += passed
            self.rollouts += 1

    def forget(self) -> None:
        """Let what an older policy did count half."""
        self.passed /= 2
        self.rollouts /= 2

    @property
    def spread(self) -> float:
        """Return the mean of s(1-s) under the Beta posterior of success s (uniform prior)."""
        a, b = self.passed + 1, self.rollouts - self.passed + 1
        return a * b / ((a + b) * (a + b + 1))


def rise_bound(low: Tally, high: Tally | None) -> float:
    """Return the lower 90 % bound of V(high) - V(low); None stands for the expert's end, whose V is 1.

    Newcombe's hybrid of Wilson score intervals (Statistics in Medicine 17, 1998, method 10): honest at 0 and 1, where a
    success rate lies before and after a fork. Both tallies must hold rollouts.
    """
    p_low, upper = low.passed / low.rollouts, _wilson(low, 1)
    p_high, lower = (1.0, 1.0) if high is None else (high.passed / high.rollouts, _wilson(high, -1))
    return p_high - p_low - math.hypot(p_high - lower, upper - p_low)


def jumps(tallies: Mapping[int, Tally], turns: int) -> list[tuple[int, int]]:
    """Return the pairs (a, b) of neighbouring turns with enough rollouts between which V jumps, in order.

    One of the expert's turns a..b-1 is crucial. `turns` is the expert's length, its end a turn like any other.
    """
    known = sorted(turn for turn, tally in tallies.items() if tally.rollouts >= MIN_ROLLOUTS)
    ends = [*known, turns]
    return [(a, b) for a, b in pairwise(ends) if rise_bound(tallies[a], tallies.get(b)) > _JUMP]


def crucial_turns(tallies: Mapping[int, Tally], turns: int) -> list[int]:
    """Return the turns of an expert that are known to be crucial: jumps that no turn lies within."""
    return [a for a, b in jumps(tallies, turns) if b == a + 1]


def _wilson(tally: Tally, sign: int) -> float:
    """Return the upper (sign 1) or lower (sign -1) end of the Wilson score interval."""
    n, p, z2 = tally.rollouts, tally.passed / tally.rollouts, _Z * _Z
    half = _Z * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n))
    return (p + z2 / (2 * n) + sign * half) / (1 + z2 / n)
