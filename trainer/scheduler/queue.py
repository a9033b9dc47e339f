"""Where every rollout of the plans under way is: one state machine each, with one writer.

A rollout is `planned`, then `running`, then `finished`; a batch makes it `consumed` or `rejected`. What a stop or a failure
ends is `aborted`, what is older than the lag allows is `too_old`. No other change is taken, so that none is consumed twice.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

from agent_runtime.types import RolloutRequest
from trainer.errors import TrainerError

__all__ = ["QueueError", "RolloutQueue", "State"]


class QueueError(TrainerError, RuntimeError):
    """A rollout was to change in a way that no rollout can: an error of the scheduler, never of what it is given."""


class State(StrEnum):
    """Where a rollout is."""

    PLANNED = "planned"
    RUNNING = "running"
    FINISHED = "finished"
    CONSUMED = "consumed"
    REJECTED = "rejected"
    ABORTED = "aborted"
    TOO_OLD = "too_old"


_NEXT = {
    State.PLANNED: {State.RUNNING, State.ABORTED},
    State.RUNNING: {State.FINISHED, State.ABORTED},
    State.FINISHED: {State.CONSUMED, State.REJECTED, State.ABORTED, State.TOO_OLD},
}


class RolloutQueue:
    """The rollouts of the plans under way, by id. A plan leaves with `forget`, so that a long run's queue stays small."""

    def __init__(self) -> None:
        self._states: dict[str, State] = {}
        self._plans: dict[int, list[str]] = {}
        self._waiting: list[tuple[int, int, int, RolloutRequest]] = []
        self._groups: dict[int, dict[str, int]] = {}
        self.counts: Counter[State] = Counter()
        """By state, of the plans that were not forgotten."""

    def add(self, plan: int, requests: Iterable[RolloutRequest]) -> None:
        """Take a plan's rollouts, or more of them. Raise `QueueError` for one that is there already."""
        own, groups = self._plans.setdefault(plan, []), self._groups.setdefault(plan, {})
        for request in requests:
            if request.id in self._states:
                raise QueueError(f"rollout {request.id!r} of plan {plan} was planned twice")
            self._states[request.id] = State.PLANNED
            self.counts[State.PLANNED] += 1
            group = groups.setdefault(request.group_id, len(groups))
            heapq.heappush(self._waiting, (plan, group, len(own), request))
            own.append(request.id)

    def restore(self, plan: int, ids: Iterable[str]) -> None:
        """Take a plan's rollouts that an earlier process finished. Raise `QueueError` for one that is there already."""
        own = self._plans.setdefault(plan, [])
        for one in ids:
            if one in self._states:
                raise QueueError(f"rollout {one!r} of plan {plan} was on record twice")
            self._states[one] = State.FINISHED
            self.counts[State.FINISHED] += 1
            own.append(one)

    def take(self) -> RolloutRequest | None:
        """Return the rollout to start next, now running: of the oldest plan, and of the group nearest to its end."""
        while self._waiting:
            *_, request = heapq.heappop(self._waiting)
            if self._states.get(request.id) is State.PLANNED:
                self.move([request.id], State.RUNNING)
                return request
        return None

    def move(self, ids: Iterable[str], to: State) -> None:
        """Bring rollouts into another state. Raise `QueueError` where one cannot get there from its own."""
        for one in ids:
            state = self._states.get(one)
            if state is None or to not in _NEXT.get(state, ()):
                raise QueueError(
                    f"rollout {one!r} cannot become {to}: got one that is {state or 'not known'}"
                )
            self._states[one] = to
            self.counts[state] -= 1
            self.counts[to] += 1

    def of(self, plan: int, *states: State) -> Sequence[str]:
        """Return the ids of a plan's rollouts in these states, in the order they were added."""
        return [one for one in self._plans.get(plan, ()) if self._states[one] in states]

    def abort(self, plan: int) -> Sequence[str]:
        """End what of a plan was not consumed; return its ids."""
        left = self.of(plan, State.PLANNED, State.RUNNING, State.FINISHED)
        self.move(left, State.ABORTED)
        return left

    def forget(self, plan: int) -> None:
        """Let go of a plan. Raise `QueueError` where one of its rollouts came to no end."""
        if left := self.of(plan, State.PLANNED, State.RUNNING, State.FINISHED):
            raise QueueError(f"{len(left)} rollouts of plan {plan} came to no end, the first is {left[0]!r}")
        for one in self._plans.pop(plan, ()):
            self.counts[self._states.pop(one)] -= 1
        self._groups.pop(plan, None)
