"""Which anchor of an expert comes next: the schedules of docs/ipa.md section 4 behind one small interface.

Pure functions of it, the options and the draw. Source: arXiv 2512.24873 section 3.2.4.4; the update rules are this
project's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from trainer.config import AnchorOptions
from trainer.rollout.starts import Anchor, Expert
from trainer.rollout.values import MIN_ROLLOUTS, Tally, jumps

__all__ = ["SCHEDULES", "Ladder", "Progress", "Schedule"]

_PATIENCE = 3  # visits in a row below `retreat` before the ladder is climbed again


class Ladder(msgspec.Struct):
    """A level of help between `top` and 0 that success lowers and failure raises."""

    level: int
    top: int
    average: float = 0.0
    """Moving average of success at this level."""
    rollouts: int = 0
    low_visits: int = 0

    def visit(self, passed: int, rollouts: int, options: AnchorOptions) -> None:
        """Count a group's outcome at this level; move once the average rests on enough rollouts."""
        weight = min(1.0, rollouts / MIN_ROLLOUTS) * (0.5 if self.rollouts else 1.0)
        self.average += weight * (passed / rollouts - self.average)
        self.rollouts += rollouts
        if self.rollouts < MIN_ROLLOUTS:
            return
        if self.average >= options.advance and self.level > 0:
            self._move(self.level - 1)
        elif self.average < options.retreat:
            self.low_visits += 1
            if self.low_visits >= _PATIENCE and self.level < self.top:
                self._move(self.level + 1)
        else:
            self.low_visits = 0

    def _move(self, level: int) -> None:
        self.level, self.average, self.rollouts, self.low_visits = level, 0.0, 0, 0


class Progress(msgspec.Struct):
    """What is known of one expert's anchors: statistics per (task, anchor), because an anchor is a history of its task."""

    rollback: Ladder
    """The present turn: of `sequential` a decision, of the others what was last tried."""
    hint: Ladder
    """How many actions the next hint tells."""
    tallies: dict[int, Tally] = {}
    """By turn."""


class Schedule(Protocol):
    """One way to move anchors."""

    def anchors(self, expert: Expert, progress: Progress) -> Sequence[int]:
        """Return the turns that are open to be drawn."""
        ...

    def pick(self, expert: Expert, progress: Progress, rng: random.Random) -> Anchor:
        """Return the next anchor. Changes nothing."""
        ...

    def observe(self, anchor: Anchor, progress: Progress, *, passed: int, rollouts: int) -> None:
        """Take in a group's outcome at an anchor that `pick` gave; the tallies are counted by the pool."""
        ...


class Sequential:
    """Sequential rollback: one anchor, from the last turn backwards as success allows."""

    def __init__(self, options: AnchorOptions) -> None:
        self._options = options

    def anchors(self, expert: Expert, progress: Progress) -> Sequence[int]:
        return (progress.rollback.level,)

    def pick(self, expert: Expert, progress: Progress, rng: random.Random) -> Anchor:
        return Anchor(expert, progress.rollback.level)

    def observe(self, anchor: Anchor, progress: Progress, *, passed: int, rollouts: int) -> None:
        if anchor.turn == progress.rollback.level:
            progress.rollback.visit(passed, rollouts, self._options)


class Parallel:
    """Parallelized initialization: up to `per_expert` anchors, the true start among them, drawn where outcomes are open.

    Where success jumps between two turns, an anchor goes halfway, the latest jump first: so forks are found by halving.
    The rest spread evenly. Weights are the Beta posterior's mean of s(1-s).
    """

    def __init__(self, options: AnchorOptions) -> None:
        self._options = options

    def anchors(self, expert: Expert, progress: Progress) -> Sequence[int]:
        turns = len(expert.turns)
        count = min(self._options.per_expert, turns)
        halfway = [(a + b) // 2 for a, b in reversed(jumps(progress.tallies, turns))]
        evenly = [round(i * turns / count) for i in range(count)]
        return sorted(list(dict.fromkeys([0, *halfway, *evenly]))[:count])

    def pick(self, expert: Expert, progress: Progress, rng: random.Random) -> Anchor:
        turns = self.anchors(expert, progress)
        weights = [progress.tallies.get(turn, Tally()).spread for turn in turns]
        return Anchor(expert, rng.choices(turns, weights)[0])

    def observe(self, anchor: Anchor, progress: Progress, *, passed: int, rollouts: int) -> None:
        progress.rollback.level = anchor.turn


class Hint:
    """Guidance: every rollout begins at the true start, told the expert's first actions, fewer as success allows."""

    def __init__(self, options: AnchorOptions) -> None:
        self._options = options

    def anchors(self, expert: Expert, progress: Progress) -> Sequence[int]:
        return (0,)

    def pick(self, expert: Expert, progress: Progress, rng: random.Random) -> Anchor:
        return Anchor(expert, 0, hint=progress.hint.level)

    def observe(self, anchor: Anchor, progress: Progress, *, passed: int, rollouts: int) -> None:
        progress.rollback.level = 0
        if anchor.hint == progress.hint.level:
            progress.hint.visit(passed, rollouts, self._options)


SCHEDULES: Mapping[str, Callable[[AnchorOptions], Schedule]] = {
    "sequential": Sequential,
    "parallel": Parallel,
    "hint": Hint,
}
"""By the name of `anchors.scheduler`."""
