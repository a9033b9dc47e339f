"""The groups of a `stream` between their drawing and a batch: what is asked for, what came in, what a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from agent_runtime.store import decode
from agent_runtime.types import RolloutRequest
from trainer.config import FilterOptions
from trainer.rollout.filling import PlayedRollout, newest_version
from trainer.rollout.filtering import rejection, varies
from trainer.rollout.starts import Anchor, Expert, Origin
from trainer.scheduler.journal import asked_for

__all__ = ["Group", "OpenGroup", "PlaceOfAnchor", "StreamState", "anchor_at", "place_of"]

PlaceOfAnchor = tuple[str, int, int]
"""The expert's id, the turn and the number of hinted actions of an `Anchor`."""


class OpenGroup(msgspec.Struct):
    """A group that was drawn and not learned."""

    number: int
    """Of all that were drawn, from 0."""
    plan: int
    requests: list[RolloutRequest]
    anchor: Anchor | None = None

    @property
    def ids(self) -> list[str]:
        """Return the rollouts that are asked for."""
        return [request.id for request in self.requests]


class StreamState(msgspec.Struct):
    """What a checkpoint holds of a stream: as it was when the batch of the checkpoint's step was formed."""

    plans: int = 0
    """That were drawn."""
    groups: int = 0
    """That were drawn."""
    open: list[OpenGroup] = []


def anchor_at(place: PlaceOfAnchor) -> Anchor:
    """Return an anchor that outcomes can be counted for. Its expert has an id and nothing else."""
    expert, turn, hint = place
    return Anchor(Expert(expert, "", 0, "", (), Origin.IMPORTED), turn, hint)


def place_of(anchor: Anchor) -> PlaceOfAnchor:
    """Return where an anchor is."""
    return anchor.expert.id, anchor.turn, anchor.hint


@dataclass(slots=True, eq=False)
class Group:
    """A group, and what came in of it."""

    number: int
    plan: int
    requests: list[RolloutRequest]
    anchor: Anchor | None
    tries: dict[str, list[PlayedRollout]] = field(default_factory=dict)
    """By request, in the order they came in: all attempts, the one that counts last."""
    judged: list[Mapping[str, float]] = field(default_factory=list)

    @staticmethod
    def reopened(state: OpenGroup) -> Group:
        """Return a group of a checkpoint, of which nothing came in."""
        return Group(state.number, state.plan, state.requests, state.anchor)

    def open(self) -> OpenGroup:
        """Return what a checkpoint holds of it."""
        return OpenGroup(self.number, self.plan, self.requests, self.anchor)

    @property
    def id(self) -> str:
        """Return the id that its rollouts share."""
        return self.requests[0].group_id

    @property
    def ids(self) -> list[str]:
        """Return the rollouts that were asked for."""
        return [request.id for request in self.requests]

    def add(self, request: str, tries: Sequence[bytes], judged: Mapping[str, float]) -> None:
        """Take all attempts at one rollout, and what judging the last of them cost."""
        self.tries[request] = [PlayedRollout(encoded, decode(encoded)) for encoded in tries]
        self.judged.append(judged)

    def add_record(self, encoded: bytes) -> None:
        """Take an attempt of the record that a process before left, in order."""
        played = PlayedRollout(encoded, decode(encoded))
        if (asked := asked_for(played.trajectory.id)) in self.ids:
            self.tries.setdefault(asked, []).append(played)

    @property
    def is_whole(self) -> bool:
        """Return whether every rollout is in."""
        return len(self.tries) == len(self.requests)

    @property
    def played(self) -> list[PlayedRollout]:
        """Return the rollouts that count, in the order they were asked for. All are in."""
        return [self.tries[one][-1] for one in self.ids]

    @property
    def rejected(self) -> list[PlayedRollout]:
        """Return the attempts that were sampled again."""
        return [played for one in self.ids for played in self.tries[one][:-1]]

    @property
    def encoded(self) -> list[bytes]:
        """Return all attempts."""
        return [played.encoded for one in self.ids for played in self.tries[one]]

    def is_flat(self, options: FilterOptions) -> bool:
        """Return whether its outcomes are all the same."""
        return not varies([played.trajectory for played in self.played], options)

    @property
    def newest(self) -> int:
        """Return the newest version that sampled a token of what is in; -1 where none was sampled."""
        versions = (newest_version(played.trajectory) for tries in self.tries.values() for played in tries)
        return max((version for version in versions if version is not None), default=-1)

    def is_too_old(self, oldest: int) -> bool:
        """Return whether it has tokens, and all of them are of versions before `oldest`."""
        return -1 < self.newest < oldest

    def lost(self, options: FilterOptions) -> list[PlayedRollout]:
        """Return the rollouts that are rejected and have no replacement."""
        return [played for played in self.played if rejection(played.trajectory, options)]

    def troubled(self, options: FilterOptions) -> int:
        """Return how many of its rollouts were rejected at least once."""
        own = ((tries, bool(rejection(tries[-1].trajectory, options))) for tries in self.tries.values())
        return sum(lost or len(tries) > 1 for tries, lost in own)
