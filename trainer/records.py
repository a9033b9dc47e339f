"""The records of a run: what was played, by kind and step, in `trajectories/` of its folder."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agent_runtime.errors import StoreWriteFailed
from agent_runtime.store import FOLDER, read_encoded, segment_path, trajectory_files, write_segment
from trainer.errors import Halted, RunFolderError
from trainer.files.folder import writing

__all__ = ["PLAYED", "SET_ASIDE", "Records"]

PLAYED, SET_ASIDE = "step", "set_aside"
"""The kinds of a plan's batch, and of what its learner does not see."""
_HALTED = "halted"
"""The kind of what was played where that halted the run."""
_WAITING, _GROUP = "waiting", "group"
"""The folder, and the kind, of a stream's groups that are in and that no checkpoint's step has learned."""


class Records:
    """Those of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, kind: str, step: int | None, encoded: Sequence[bytes]) -> None:
        """Write encoded trajectories as one file; none make no file, and remove one of before. Raise `RunFolderError`."""
        path = segment_path(self._folder, kind, step)
        if not encoded:
            with writing("records", self._folder):
                path.unlink(missing_ok=True)
            return
        try:
            write_segment(path, encoded)
        except StoreWriteFailed as error:
            raise RunFolderError(f"{error} A training run continues with --resume.") from error

    def read(self, kind: str, step: int) -> list[bytes]:
        """Return the encoded trajectories of one file; none where there is no such file. Raise `StoreError`, `OSError`."""
        path = segment_path(self._folder, kind, step)
        return list(read_encoded(path)) if path.is_file() else []

    def keep(self, number: int, encoded: Sequence[bytes]) -> None:
        """Write a stream's group of this number until it is learned. Raise `RunFolderError`."""
        Records(self._folder / _WAITING).write(_GROUP, number, encoded)

    def waiting(self, number: int) -> list[bytes]:
        """Return what was written of a group; none where nothing was. Raise `StoreError`, `OSError`."""
        return Records(self._folder / _WAITING).read(_GROUP, number)

    def forget_waiting(self, below: float = math.inf, *, but: Collection[int]) -> None:
        """Remove the groups with a number below `below` but these. Raise `RunFolderError`."""
        with writing("records", self._folder):
            for path in trajectory_files(self._folder / _WAITING / FOLDER):
                number = path.stem.rpartition("-")[2]
                if number.isdigit() and int(number) < below and int(number) not in but:
                    path.unlink()

    @contextmanager
    def kept_if_halted(self) -> Iterator[None]:
        """Store what had been played where it halts the body, until a later attempt does not."""
        path = segment_path(self._folder, _HALTED)
        try:
            yield
        except Halted as halted:
            if not halted.rollouts:
                raise
            self.write(_HALTED, None, halted.rollouts)
            raise Halted(f"{halted} What was played: `ale replay show {path}`.") from halted
        with writing("records", self._folder):
            path.unlink(missing_ok=True)

    def forget_after(self, step: int, *, but: Collection[int] = ()) -> None:
        """Remove what belongs to later steps, which will be done again, but for plans that are played already.

        Raise `RunFolderError`.
        """
        with writing("records", self._folder):
            for path in trajectory_files(self._folder / FOLDER):
                kind, _, number = path.stem.rpartition("-")
                if (
                    number.isdigit()
                    and int(number) > step
                    and not (int(number) in but and kind in (PLAYED, SET_ASIDE))
                ):
                    path.unlink()
