"""The pool of experts and what is known of their anchors: where rollouts start, and what is imitated beside RL.

An *expert* is a successful trajectory (an oracle's, a teacher's, an imported one, or one that the policy sampled
itself); an *anchor* is a turn of it from which the policy plays on. `choose` comes before a step, `observe` after it.
Plain state that serialises, so that a resumed run goes on alike; never samples, never touches an environment. Source:
arXiv 2512.24873 section 3.2.4.4 and Eq. 10; the update rules are this project's (docs/ipa.md sections 4 and 5).
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from agent_runtime.types import Trajectory
from trainer.config import AnchorOptions
from trainer.errors import CheckpointError
from trainer.rollout.schedules import SCHEDULES, Ladder, Progress
from trainer.rollout.starts import Anchor, Expert, Injection, Origin, expert_from, stood_at
from trainer.rollout.values import MIN_ROLLOUTS, Tally, crucial_turns

__all__ = ["Anchor", "AnchorPool", "Expert", "Origin", "expert_from", "injections"]

_OWN = "~own"
"""Ends the id of a success of this run that is called as an expert from another run."""


class _Left(msgspec.Struct, frozen=True):
    """A failed rollout that left an expert's way at a crucial turn: until there both are one, so it starts there again."""

    expert_id: str
    turn: int
    step: int


class _State(msgspec.Struct):
    """All that lasts."""

    experts: dict[str, Expert] = {}
    progress: dict[str, Progress] = {}
    shorter: dict[str, Expert] = {}
    """By task: the policy's shortest success from the true start since the last refresh."""
    left: list[_Left] = []
    """Oldest first."""
    replaced: int = 0


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

    def __init__(self, options: AnchorOptions, *, max_turns: int | None = None) -> None:
        """`max_turns` are the most of one rollout, its prefix counted: no rollout starts on the way of a longer expert."""
        self._options, self._max_turns = options, max_turns
        kind = SCHEDULES.get(options.scheduler)
        self._schedule = kind(options) if kind else None
        self._state = _State()

    def __len__(self) -> int:
        return len(self._state.experts)

    @property
    def experts(self) -> tuple[Expert, ...]:
        """Return the experts, oldest first."""
        return tuple(self._state.experts.values())

    def add(self, expert: Expert) -> None:
        """Take an expert in. Beyond the pool's size the policy's own oldest one leaves, then the oldest."""
        experts = self._state.experts
        if not expert.turns or expert.id in experts:
            return
        length = len(expert.turns)
        hint = min(self._options.hint_turns or length, length)
        experts[expert.id] = expert
        self._state.progress[expert.id] = Progress(Ladder(length - 1, length - 1), Ladder(hint, hint))
        if len(experts) > self._options.pool:
            own = (e.id for e in experts.values() if e.origin is Origin.SELF)
            self.drop(next(own, next(iter(experts))))

    def drop(self, expert_id: str) -> None:
        """Forget an expert and all that is known of it."""
        state = self._state
        state.experts.pop(expert_id, None)
        state.progress.pop(expert_id, None)
        state.shorter = {task: own for task, own in state.shorter.items() if own.id != expert_id}
        state.left = [each for each in state.left if each.expert_id != expert_id]

    def forks(self) -> dict[str, list[int]]:
        """Return the turns of every expert (by id) that are known to be crucial."""
        progress = self._state.progress
        return {e.id: crucial_turns(progress[e.id].tallies, len(e.turns)) for e in self.experts}

    # -- a step -----------------------------------------------------------------------------------------------

    def is_too_long(self, expert: Expert) -> bool:
        """Return whether the expert takes more turns than a rollout has; it can be imitated, and is no start."""
        return self._max_turns is not None and len(expert.turns) > self._max_turns

    def choose(self, count: int, seed: int) -> list[Anchor]:
        """Return `count` anchors for the next step; fewer only where there is no expert to start from. Changes nothing."""
        state = self._state
        ids = [expert.id for expert in self.experts if not self.is_too_long(expert)]
        if not ids or self._schedule is None or count == 0:
            return []
        rng = random.Random(seed)
        failures = [each for each in state.left if each.expert_id in ids]
        again = rng.sample(failures, min(len(failures), math.floor(count * self._options.replay_share)))
        wanted = count - len(again)
        drawn = rng.sample(ids, wanted) if wanted <= len(ids) else rng.choices(ids, k=wanted)
        anchors = [self._schedule.pick(state.experts[each], state.progress[each], rng) for each in drawn]
        return anchors + [Anchor(state.experts[left.expert_id], left.turn) for left in again]

    def observe(self, step: int, anchors: Mapping[str, Anchor], trajectories: Sequence[Trajectory]) -> None:
        """Take in a step's rollouts: count them, move the anchors, and let the pool follow the policy.

        `anchors` are those of the groups (by id) that do not begin at the task's own start. Failed rollouts count for
        nothing; an expert whose replay diverged is dropped.
        """
        groups: dict[str, list[Trajectory]] = {}
        for trajectory in trajectories:
            groups.setdefault(trajectory.group_id, []).append(trajectory)
        for group_id, members in groups.items():
            anchor = anchors.get(group_id)
            if anchor and any(t.failure and t.failure.code == "reset_divergence" for t in members):
                self.drop(anchor.expert.id)
                continue
            self._observe_group(step, anchor, [t for t in members if t.has_reward])
        self._count(step, [t for t in trajectories if t.has_reward])
        if self._options.refresh and step % self._options.refresh == 0:
            self._refresh()
        self._expire(step)

    def _observe_group(self, step: int, anchor: Anchor | None, done: Sequence[Trajectory]) -> None:
        if anchor is None:
            shortest = min((t for t in done if t.passed), key=lambda t: len(t.env_turns), default=None)
            if shortest is not None and shortest.env_turns:
                self._take(replace(expert_from(shortest, Origin.SELF), step=step))
        elif done and self._schedule and anchor.expert.id in self._state.progress:
            progress, passed = self._state.progress[anchor.expert.id], sum(t.passed for t in done)
            self._schedule.observe(anchor, progress, passed=passed, rollouts=len(done))

    def _take(self, own: Expert) -> None:
        """Consider a success of the policy's own from the true start."""
        named_alike = self._state.experts.get(own.id)
        if (
            named_alike and named_alike.origin is not Origin.SELF
        ):  # what another run played has that run's ids
            own = replace(own, id=f"{own.id}{_OWN}")
        if self._options.self_sampled:
            self.add(own)
        known = self._state.shorter.get(own.task_id)
        if self._options.refresh and (known is None or len(own.turns) < len(known.turns)):
            self._state.shorter[own.task_id] = own

    def _count(self, step: int, done: Sequence[Trajectory]) -> None:
        """Count every rollout at all anchors of its task that it stood at, wherever it began."""
        by_task: dict[str, list[Expert]] = {}
        for expert in self._state.experts.values():
            by_task.setdefault(expert.task_id, []).append(expert)
        for trajectory in done:
            for expert in by_task.get(trajectory.task_id, ()):
                if expert.origin is Origin.SELF and expert.id.removesuffix(_OWN) == trajectory.id:
                    continue  # it became an expert because it succeeded: no fair sample of success
                stood = stood_at(expert, trajectory)
                tallies = self._state.progress[expert.id].tallies
                hinted = bool(trajectory.start.hint)
                for turn in stood:
                    tallies.setdefault(turn, Tally()).add(trajectory.passed, hinted=hinted)
                if self._options.replay_share and stood and not trajectory.passed and not hinted:
                    self._keep_failure(expert, stood[-1], step)

    def _keep_failure(self, expert: Expert, turn: int, step: int) -> None:
        tallies = self._state.progress[expert.id].tallies
        if turn in crucial_turns(tallies, len(expert.turns)):
            self._state.left = [*self._state.left, _Left(expert.id, turn, step)][-self._options.pool :]

    def _refresh(self) -> None:
        """Re-estimate every expert under the present policy: shorter successes take over, older counts lose half."""
        state = self._state
        for tally in (tally for progress in state.progress.values() for tally in progress.tallies.values()):
            tally.forget()
        for expert in self.experts:
            shorter = state.shorter.get(expert.task_id)
            if shorter is None or len(shorter.turns) >= len(expert.turns):
                continue
            before = state.progress[expert.id]
            left = len(expert.turns) - before.rollback.level
            self.drop(expert.id)
            self.add(shorter)
            rollback, hint = state.progress[shorter.id].rollback, state.progress[shorter.id].hint
            rollback.level = min(rollback.level, max(0, len(shorter.turns) - left))
            hint.level = min(hint.level, before.hint.level)
            state.replaced += 1
        state.shorter = {}

    def _expire(self, step: int) -> None:
        if not self._options.max_age:
            return
        oldest = step - self._options.max_age
        for expert in self.experts:
            if expert.origin is Origin.SELF and expert.step < oldest:
                self.drop(expert.id)
        self._state.left = [each for each in self._state.left if each.step >= oldest]

    # -- imitation --------------------------------------------------------------------------------------------

    def injections(self, count: int, seed: int) -> list[Anchor]:
        """Return up to `count` anchors up to which an expert is imitated, by the gate of Eq. 10."""
        found = []
        for key, expert in self._state.experts.items():
            last = self._imitated_to(expert, self._state.progress[key])
            if expert.origin is not Origin.SELF and last is not None:
                found.append(Anchor(expert, last))
        return found if len(found) <= count else random.Random(seed).sample(found, count)

    def _imitated_to(self, expert: Expert, progress: Progress) -> int | None:
        """Return the last turn to imitate: the crucial one, or until that is known the anchor's; None: gate closed."""
        if self._options.inject_gate == "none":
            return len(expert.turns) - 1
        dry = {turn for turn, tally in progress.tallies.items() if tally.dry >= MIN_ROLLOUTS}
        crucial = dry.intersection(crucial_turns(progress.tallies, len(expert.turns)))
        offered = self._schedule.anchors(expert, progress) if self._schedule else ()
        return max(crucial or dry.intersection(offered), default=None)

    # -- state ------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        found: dict[str, Any] = msgspec.to_builtins(self._state)
        return found

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`. Raise `CheckpointError` for what is none."""
        try:
            self._state = msgspec.convert(state, _State)
        except msgspec.ValidationError as error:
            raise CheckpointError(
                f"cannot read the anchors of this checkpoint: {error}. Resume with the version of ale that wrote it, or "
                "start a new run."
            ) from error

    def metrics(self) -> dict[str, float]:
        """Return what is known, under the names of docs/metrics.md."""
        state = self._state
        if not state.experts:
            return {}
        known = [(expert, state.progress[expert.id]) for expert in self.experts]
        places = [progress.rollback.level / max(1, len(expert.turns) - 1) for expert, progress in known]
        return {
            "anchor_mean": sum(places) / len(places),
            "anchors/experts": float(len(known)),
            "anchors/own_experts": float(sum(expert.origin is Origin.SELF for expert, _ in known)),
            "anchors/forks": float(sum(map(len, self.forks().values()))),
            "anchors/replaced": float(state.replaced),
        }
