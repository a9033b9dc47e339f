"""Where rollouts start: expert trajectories, their anchors, and the two schedules of IPA.md section 2.

An *expert* is a successful trajectory (an oracle's, or one the policy sampled itself); an *anchor* is a turn of it from
which the policy plays on. Called by the loop: `choose` before a step, `observe` after it. Plain state that serialises;
never samples, never touches an environment. Source: arXiv 2512.24873 section 3.2.4.4; the update rules are this project's.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_runtime.types import PrefixTurn, Start, Trajectory
from trainer.config import AnchorOptions
from trainer.engine.injection import Injection

__all__ = ["Anchor", "AnchorPool", "Expert", "expert_from", "injections"]

_MIN_ROLLOUTS = 8  # IPA.md section 2: the moving average needs n >= 8 rollouts before it decides
_PATIENCE = 3  # visits below `retreat` before the anchor moves later


@dataclass(frozen=True, slots=True)
class Expert:
    """A successful trajectory reduced to what replay needs."""

    id: str
    task_id: str
    env_seed: int
    first_observation: str
    turns: tuple[PrefixTurn, ...]
    oracle: bool
    """Recorded from the oracle, not sampled by the policy."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """Turn `turn` of an expert: turns before it are replayed, the policy plays from it on (0 is the true start)."""

    expert: Expert
    turn: int

    def start(self, seed: int) -> Start:
        """Return where a rollout with `seed` starts; rollouts from one anchor differ in what follows only."""
        expert = self.expert
        return Start(
            env_seed=expert.env_seed,
            first_observation=expert.first_observation,
            prefix=expert.turns[: self.turn],
            resume_seed=seed,
            source_id=expert.id,
        )


def expert_from(trajectory: Trajectory) -> Expert:
    """Reduce a successful trajectory that began at the task's true start."""
    pairs = zip(trajectory.actions, trajectory.observations, strict=True)
    return Expert(
        id=trajectory.id,
        task_id=trajectory.task_id,
        env_seed=trajectory.start.env_seed,
        first_observation=trajectory.first_observation,
        turns=tuple(PrefixTurn(action, observation) for action, observation in pairs),
        oracle=trajectory.is_expert,
    )


@dataclass(slots=True)
class _Progress:
    """What is known of one expert's anchors."""

    turn: int
    """Sequential: the anchor's present turn."""
    ema: float = 0.0
    rollouts: int = 0
    low_visits: int = 0
    tried: dict[int, list[int]] = field(default_factory=dict)
    """turn -> [successes, rollouts] since the start."""
    dry: int = 0
    """Anchored rollouts since the last success: the injection gate."""


def injections(anchors: Sequence[Anchor], turns: int, *, weight: float, seed: int) -> list[Injection]:
    """Return what to imitate of experts up to their anchors: everything, or `turns` turns drawn evenly.

    The imitation term is a mean over the experts given, so those that had turns drawn are weighted to stand for all.
    """
    every = [(anchor.expert.id, turn) for anchor in anchors for turn in range(anchor.turn + 1)]
    drawn = sorted(random.Random(seed).sample(every, turns)) if 0 < turns < len(every) else every
    chosen: dict[str, list[int]] = {}
    for expert, turn in drawn:
        chosen.setdefault(expert, []).append(turn)
    stands_for = len(every) / max(1, len(drawn)) * len(chosen) / max(1, len(anchors))
    return [Injection(expert, tuple(own), weight * stands_for) for expert, own in chosen.items()]


class AnchorPool:
    """The experts, their anchors and the schedule."""

    def __init__(self, options: AnchorOptions) -> None:
        self._options = options
        self._experts: dict[str, Expert] = {}
        self._progress: dict[str, _Progress] = {}

    def __len__(self) -> int:
        return len(self._experts)

    @property
    def experts(self) -> tuple[Expert, ...]:
        """Return the experts, oldest first."""
        return tuple(self._experts.values())

    def add(self, expert: Expert) -> None:
        """Take an expert in. Beyond the pool's size the oldest self-sampled one leaves, then the oldest."""
        if not expert.turns or expert.id in self._experts:
            return
        self._experts[expert.id] = expert
        self._progress[expert.id] = _Progress(turn=len(expert.turns) - 1)
        if len(self._experts) > self._options.pool:
            leaving = next((e.id for e in self._experts.values() if not e.oracle), next(iter(self._experts)))
            del self._experts[leaving], self._progress[leaving]

    def drop(self, expert_id: str) -> None:
        """Forget an expert whose replay diverged."""
        self._experts.pop(expert_id, None)
        self._progress.pop(expert_id, None)

    def choose(self, count: int, seed: int) -> list[Anchor]:
        """Return `count` anchors for the next step; fewer only where there are no experts."""
        if not self._experts or self._options.scheduler == "none" or count == 0:
            return []
        rng = random.Random(seed)
        ids = list(self._experts)
        drawn = rng.sample(ids, count) if count <= len(ids) else rng.choices(ids, k=count)
        pick = self._sequential if self._options.scheduler == "sequential" else self._parallel
        return [Anchor(self._experts[expert_id], pick(expert_id, rng)) for expert_id in drawn]

    def observe(self, expert_id: str, turn: int, *, passed: int, rollouts: int) -> None:
        """Record a group's outcome at an anchor and move the sequential anchor if it is due."""
        progress = self._progress.get(expert_id)
        if progress is None or rollouts == 0:
            return
        tally = progress.tried.setdefault(turn, [0, 0])
        tally[0] += passed
        tally[1] += rollouts
        progress.dry = 0 if passed else progress.dry + rollouts
        if self._options.scheduler != "sequential" or turn != progress.turn:
            return
        rate = passed / rollouts
        weight = min(1.0, rollouts / _MIN_ROLLOUTS) * (0.5 if progress.rollouts else 1.0)
        progress.ema += weight * (rate - progress.ema)
        progress.rollouts += rollouts
        if progress.rollouts < _MIN_ROLLOUTS:
            return
        last = len(self._experts[expert_id].turns) - 1
        if progress.ema >= self._options.advance and progress.turn > 0:
            self._move(progress, progress.turn - 1)
        elif progress.ema < self._options.retreat:
            progress.low_visits += 1
            if progress.low_visits >= _PATIENCE and progress.turn < last:
                self._move(progress, progress.turn + 1)
        else:
            progress.low_visits = 0

    def injections(self, count: int, seed: int) -> list[Anchor]:
        """Return up to `count` anchors up to which an expert is imitated, by the gate of Eq. 10."""
        gated = self._options.inject_gate == "dry"
        found = [
            Anchor(expert, progress.turn if gated else len(expert.turns) - 1)
            for expert, progress in ((self._experts[key], p) for key, p in self._progress.items())
            if expert.oracle and (not gated or progress.dry >= _MIN_ROLLOUTS)
        ]
        return found if len(found) <= count else random.Random(seed).sample(found, count)

    def state(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        return {
            "experts": [
                {
                    "id": e.id,
                    "task_id": e.task_id,
                    "env_seed": e.env_seed,
                    "first": e.first_observation,
                    "turns": [[turn.action, turn.observation] for turn in e.turns],
                    "oracle": e.oracle,
                }
                for e in self._experts.values()
            ],
            "progress": {
                key: [p.turn, p.ema, p.rollouts, p.low_visits, sorted(p.tried.items()), p.dry]
                for key, p in self._progress.items()
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`."""
        self._experts = {
            e["id"]: Expert(
                id=e["id"],
                task_id=e["task_id"],
                env_seed=e["env_seed"],
                first_observation=e["first"],
                turns=tuple(PrefixTurn(action, observation) for action, observation in e["turns"]),
                oracle=e["oracle"],
            )
            for e in state["experts"]
        }
        self._progress = {
            key: _Progress(turn, ema, rollouts, low, {int(k): list(v) for k, v in tried}, dry)
            for key, (turn, ema, rollouts, low, tried, dry) in state["progress"].items()
        }

    def histogram(self) -> Sequence[float]:
        """Return each expert's present anchor as a share of its length (0 is the true start)."""
        return [p.turn / max(1, len(self._experts[key].turns) - 1) for key, p in self._progress.items()]

    @staticmethod
    def _move(progress: _Progress, turn: int) -> None:
        progress.turn, progress.ema, progress.rollouts, progress.low_visits, progress.dry = turn, 0.0, 0, 0, 0

    def _sequential(self, expert_id: str, rng: random.Random) -> int:
        return self._progress[expert_id].turn

    def _parallel(self, expert_id: str, rng: random.Random) -> int:
        """Draw among the true start and evenly spaced turns, weighted by s(1-s) of the Beta(1, 1) posterior mean."""
        progress, length = self._progress[expert_id], len(self._experts[expert_id].turns)
        count = min(self._options.per_expert, length)
        turns = sorted({round(i * length / count) for i in range(count)})
        weights = []
        for turn in turns:
            successes, rollouts = progress.tried.get(turn, (0, 0))
            mean = (successes + 1) / (rollouts + 2)
            weights.append(mean * (1 - mean))
        progress.turn = rng.choices(turns, weights)[0]
        return progress.turn
