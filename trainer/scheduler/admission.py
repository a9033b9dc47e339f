"""How far ahead of the learner a `stream` may be: the rule that keeps its tokens within the lag."""

from __future__ import annotations

from trainer.config import TrainConfig

__all__ = ["Admission"]


class Admission:
    """Counts the groups that were let in and not set aside: as many as the lag, the spare ones and the run allow.

    A group that is in the batch of step s, were all learned in the order they were drawn, is let in when version
    s - 1 - lag is there: its tokens are then at most `lag` versions old. (The rule of AReaL, arXiv 2505.24298 Eq. 3, in
    groups.)
    """

    def __init__(self, config: TrainConfig, *, done: int) -> None:
        """`done` steps are learned."""
        rollout = config.rollout
        self._batch, self._lag, self._spare = rollout.groups_per_step, rollout.staleness, rollout.spare_groups
        self._most = config.steps * self._batch
        self._version = done
        self._count = done * self._batch

    def learned(self, version: int) -> None:
        """Take note that this version is there."""
        self._version = max(self._version, version)

    @property
    def is_open(self) -> bool:
        """Return whether a further group may be let in."""
        ahead = (self._version + 1 + self._lag) * self._batch + self._spare
        return self._count < min(ahead, self._most)

    def let_in(self) -> None:
        """Count a group."""
        self._count += 1

    def give_back(self) -> None:
        """Count a group no longer that no batch will hold."""
        self._count -= 1
