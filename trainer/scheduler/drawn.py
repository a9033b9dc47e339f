"""What a run's plans are drawn from: its planner, anchor pools and pass rates; and the records that its rollouts go to.

In the modes `pipeline` and `stream` plans run ahead of the steps that are done, so that pools and rates do, too: each batch
brings along what they were after its own groups, for the checkpoint of its step.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import msgspec

from agent_runtime.errors import StoreError
from agent_runtime.store import decode
from agent_runtime.types import RolloutRequest, Trajectory
from trainer.config import TrainConfig
from trainer.records import PLAYED, SET_ASIDE, Records
from trainer.rollout.curriculum import PassRates
from trainer.rollout.filling import PlayedRollout, Rollouts
from trainer.rollout.planning import Plan, Planner
from trainer.rollout.pools import Pools
from trainer.rollout.starts import Anchor
from trainer.run_state import RunState
from trainer.scheduler.journal import BatchTally

__all__ = ["DrawnPlans", "Moved"]


@dataclass(frozen=True, slots=True)
class Moved:
    """What a plan's outcomes moved."""

    from_start: list[Trajectory]
    """The rollouts that began at their tasks' own start."""
    metrics: Mapping[str, float]
    """Of the anchor pools."""
    rates: Mapping[str, PassRates] | None
    """By environment, where plans run ahead."""
    anchors: dict[str, Any]
    """The state of the pools, where plans run ahead."""

    def put_into(self, state: RunState) -> None:
        """Make it the state of the run, where that has not moved by itself."""
        if self.rates is not None:
            for env, own in state.rates(list(self.rates)).items():
                own.clear()
                own.update(self.rates[env])
            state.anchors = self.anchors


class DrawnPlans:
    """A `scheduler.sampling.PlanSource` of a run."""

    def __init__(
        self, config: TrainConfig, planner: Planner, pools: Pools, state: RunState, records: Records
    ) -> None:
        self._planner, self._pools, self._records = planner, pools, records
        self._ahead = config.rollout.overlaps
        rates = state.rates(planner.names)
        self._rates = copy.deepcopy(rates) if self._ahead else rates

    def plan(self, step: int) -> Plan:
        """Draw a plan, by what was observed."""
        return self._planner.plan(step, self._rates)

    def more(
        self, step: int, first: int, envs: Sequence[str], used: Collection[tuple[str, str]]
    ) -> list[RolloutRequest]:
        """Draw further groups."""
        return self._planner.more(step, first, envs, used, self._rates)

    def observe(self, plan: Plan, rollouts: Rollouts) -> Moved:
        """Move anchors and pass rates by what the policy did."""
        self._planner.observe_anchors(plan, rollouts.seen)
        from_start = self._planner.observe_tasks(plan, rollouts.seen, self._rates)
        return Moved(
            from_start,
            self._pools.metrics(),
            copy.deepcopy(self._rates) if self._ahead else None,
            self._pools.state() if self._ahead else {},
        )

    def store(self, step: int, rollouts: Rollouts) -> None:
        """Put a plan's rollouts on record. Raise `RunFolderError`."""
        self._records.write(PLAYED, step, rollouts.encoded)
        self._records.write(SET_ASIDE, step, [played.encoded for played in rollouts.set_aside])

    def stored(self, step: int, tally: BatchTally) -> Rollouts | None:
        """Return a plan's rollouts from the record; None where it is not whole."""
        try:
            encoded = self._records.read(PLAYED, step)
            played = [PlayedRollout(data, decode(data)) for data in self._records.read(SET_ASIDE, step)]
            trajectories = [decode(data) for data in encoded]
        except (StoreError, OSError):
            return None
        aside = {"rejected": played[: tally.rejected], "flat": played[tally.rejected :]}
        return Rollouts(encoded, trajectories, **{**msgspec.structs.asdict(tally), **aside})

    def learning(self, step: int, requests: Sequence[RolloutRequest], anchors: Mapping[str, Anchor]) -> Plan:
        """Return what a step learns, of a stream's groups."""
        return self._planner.learning(step, requests, anchors)

    def keep(self, number: int, encoded: Sequence[bytes]) -> None:
        """Put all attempts of a stream's group on record. Raise `RunFolderError`."""
        self._records.keep(number, encoded)

    def kept(self, number: int) -> Sequence[bytes]:
        """Return them; none where the record is not whole."""
        try:
            return self._records.waiting(number)
        except (StoreError, OSError):
            return ()

    def forget_kept(self, *, but: Collection[int]) -> None:
        """Remove the record of all groups but these. Raise `RunFolderError`."""
        self._records.forget_waiting(but=but)

    def halting(self) -> AbstractContextManager[None]:
        """Keep on record what was played where that halts the run."""
        return self._records.kept_if_halted()
