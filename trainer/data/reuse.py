"""Successes of earlier steps, kept to be learned from again: trajectories as they were sampled, credits as they were given.

Owned by the learner, which saves it with its checkpoints. Log-probabilities are those stored at sampling, so whatever an
algorithm does about stale samples applies. Credit is kept, not given anew, because the rest of its group is gone. It never
gives out a sample beyond the lag bound; the ledger counts the trajectory as dropped, and its tokens only where they were
sampled: what leaves takes no part in a step, so it must not weigh in the step's normaliser either.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent_runtime.store import decode, encode
from agent_runtime.types import Trajectory
from rock_env.errors import InvalidArgument
from rock_env.foreign import budget
from trainer.config import ReuseOptions
from trainer.data.batch import Credit
from trainer.errors import CheckpointError

__all__ = ["Drawn", "ReuseBuffer"]

_FILE = "reuse.msgpack"


class _Success(msgspec.Struct, frozen=True):
    """One success in the form it is saved in."""

    trajectory: bytes
    version: int
    """The oldest weights that sampled a token of it."""
    advantage_K: list[float]
    chunk_K: list[int] | None
    masked: dict[int, str]
    every_token: bool
    value_K: list[float] | None = None
    return_K: list[float] | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """What an update learns again, and how many successes were too old for it."""

    trajectories: list[Trajectory]
    credits: list[Credit]
    too_old: int


class ReuseBuffer:
    """The successes, oldest first."""

    def __init__(self, options: ReuseOptions) -> None:
        self._options = options
        self._kept: list[_Success] = []

    def __len__(self) -> int:
        return len(self._kept)

    def draw(self, version: int, seed: int) -> Drawn:
        """Return what joins an update of weights `version`; it stays until it is too old, and then leaves."""
        oldest = version - self._options.max_lag
        held = len(self._kept)
        self._kept = [each for each in self._kept if each.version >= oldest]
        count = min(self._options.trajectories, len(self._kept))
        found = [_restored(each) for each in random.Random(seed).sample(self._kept, count)]
        return Drawn([t for t, _ in found], [credit for _, credit in found], held - len(self._kept))

    def keep(self, trajectories: Sequence[Trajectory], credits: Sequence[Credit]) -> None:
        """Keep those of a step's own rollouts that succeeded and had credit."""
        if not self._options.trajectories:
            return
        for trajectory, credit in zip(trajectories, credits, strict=True):
            if credit.positive and not credit.dropped and credit.advantage_K.any():
                self._kept.append(_saved(trajectory, credit))
        self._kept = self._kept[-self._options.capacity :]

    def save(self, folder: Path) -> None:
        """Write the successes into an existing folder; nothing where there are none. Raise `OSError`."""
        if self._kept:
            (folder / _FILE).write_bytes(msgspec.msgpack.encode(self._kept))

    def load(self, folder: Path) -> None:
        """Read what `save` wrote. Raise `CheckpointError` for a file that cannot be read."""
        path = folder / _FILE
        try:
            self._kept = (
                msgspec.msgpack.decode(budget.read_whole(path, str(path)), type=list[_Success])
                if path.exists()
                else []
            )
        except (OSError, InvalidArgument, ValueError, RecursionError, msgspec.DecodeError) as error:
            raise CheckpointError(
                f"cannot read {path}: {error}. Remove the folder {folder.name} to resume from the one before."
            ) from error


def _saved(trajectory: Trajectory, credit: Credit) -> _Success:
    return _Success(
        trajectory=encode(trajectory),
        version=min(turn.oldest_version for turn in trajectory.turns),
        advantage_K=credit.advantage_K.tolist(),
        chunk_K=_plain(credit.chunk_K),
        masked=dict(credit.masked),
        every_token=credit.every_token,
        value_K=_plain(credit.value_K),
        return_K=_plain(credit.return_K),
    )


def _restored(kept: _Success) -> tuple[Trajectory, Credit]:
    credit = Credit(
        advantage_K=np.array(kept.advantage_K, np.float64),
        positive=True,
        imitation_K=np.zeros(len(kept.advantage_K)),
        chunk_K=None if kept.chunk_K is None else np.array(kept.chunk_K, np.int64),
        masked=kept.masked,
        every_token=kept.every_token,
        value_K=None if kept.value_K is None else np.array(kept.value_K, np.float64),
        return_K=None if kept.return_K is None else np.array(kept.return_K, np.float64),
    )
    return decode(kept.trajectory), credit


def _plain(values: NDArray[Any] | None) -> list[Any] | None:
    return None if values is None else values.tolist()
