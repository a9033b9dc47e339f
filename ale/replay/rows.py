"""What is asked of every rollout, a row each, kept beside the records so that the second question is quick.

The kept rows are a cache and nothing else: they are made again where a file has changed, where they cannot be read, and
where somebody deleted them. No record is ever read by them unchecked.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent_runtime.errors import CorruptTrajectory, StoreError
from agent_runtime.store import TrajectoryReader, read_at
from agent_runtime.types import TURNS, Trajectory
from ale.replay.places import raise_damaged, segments
from rock_env.errors import InvalidArgument
from rock_env.foreign import budget
from rock_env.foreign.folder import read_file

__all__ = ["INDEX", "Outcomes", "Row", "found_by_row", "row_of", "rows", "rows_of_file"]

INDEX = ".index"
"""Folder beside the records."""
_VERSION = 2
_JUDGES = "reward_"
"""How the codes of failures begin that are a reward worker's, not the rollout's."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """How rollouts have to have come out: in one of the ways that are True, in any where none is."""

    passed: bool = False
    unsolved: bool = False
    """It has a reward, and did not pass."""
    errored: bool = False
    """It failed: it has no reward."""
    ungraded: bool = False
    """It errored, and not before its end: its grader or its judge failed."""

    def fits(self, row: Row) -> bool:
        """Return whether a rollout came out so."""
        asked = {name for name in self.__slots__ if getattr(self, name)}
        return not asked or row.outcome in asked or (self.ungraded and row.ungraded)

    def __str__(self) -> str:
        return " or ".join(name for name in self.__slots__ if getattr(self, name)) or "recorded"


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One rollout, as it is listed, sorted and found."""

    id: str
    env: str
    task_id: str
    group_id: str
    step: int
    """The training step that asked for it; 0 for none."""
    anchor: int
    turns: int
    tokens: int
    """Sampled."""
    reward: float
    """0 where it failed to run."""
    passed: bool
    end: str
    """Why it ended, or the failure's code."""
    failed: bool
    """It failed to run: its reward means nothing."""
    ungraded: bool
    """It failed to run, at its end: its grader or its judge failed."""
    duration_s: float
    offset: int
    """Of its record in the file."""

    @property
    def outcome(self) -> str:
        """`passed`, `unsolved` or `errored`."""
        return "errored" if self.failed else "passed" if self.passed else "unsolved"


class _Kept(msgspec.Struct, array_like=True):
    version: int
    size: int
    changed_ns: int
    rows: list[Row]


def row_of(trajectory: Trajectory, offset: int = 0) -> Row:
    """Return a rollout's row."""
    failed = not trajectory.has_reward
    return Row(
        trajectory.id,
        trajectory.env,
        trajectory.task_id,
        trajectory.group_id,
        trajectory.policy_step,
        trajectory.start.anchor,
        len(trajectory.turns),
        trajectory.sampled_tokens,
        0.0 if failed else trajectory.reward,
        trajectory.passed,
        trajectory.failure.code if trajectory.failure else str(trajectory.stop_reason),
        failed,
        _is_ungraded(trajectory),
        trajectory.duration_s,
        offset,
    )


def _is_ungraded(trajectory: Trajectory) -> bool:
    """Return whether a rollout was played to its end, and has no reward because its grader or its judge failed.

    What failed in a CLI agent's session, and in records of schema 1, is known of judges only.
    """
    failure = trajectory.failure
    if failure is None or failure.code.startswith(_JUDGES):
        return failure is not None
    was_ended = failure.code == "policy" or failure.message.startswith(f"{TURNS} ")
    is_amid_a_turn = trajectory.hosting is None or trajectory.lost_tokens > 0
    return not (trajectory.is_session or was_ended or is_amid_a_turn)


def rows(where: str) -> Iterator[tuple[Path, Row]]:
    """Yield the row of every intact rollout with its file, in the order written.

    Raise as `records.iterate` does, after everything that is intact.
    """
    damaged: list[StoreError] = []
    for path in segments(where):
        try:
            found, problems = rows_of_file(path)
        except StoreError as error:
            damaged.append(error)
            continue
        damaged += problems
        for row in found:
            yield path, row
    raise_damaged(damaged)


def found_by_row(where: str, identity: str) -> Trajectory | None:
    """Return the first rollout with this id, read and checked at its place; None if it is in no row or not there."""
    for path in segments(where):
        with suppress(StoreError):
            for row in rows_of_file(path)[0]:
                if row.id == identity:
                    found = read_at(path, row.offset)
                    return found if found.id == identity else None
    return None


def rows_of_file(path: Path) -> tuple[list[Row], list[CorruptTrajectory]]:
    """Return the rows of a file's intact records, and what is wrong with the others. Raise `StoreError`."""
    kept = _read(path)
    if kept is not None:
        return kept, []
    problems: list[CorruptTrajectory] = []
    before = _state(path)
    reader = TrajectoryReader(path, damaged=problems)
    found = [row_of(trajectory, offset) for offset, trajectory in reader.located()]
    if not problems and before is not None and before == _state(path):
        _write(path, before, found)
    return found, problems


def _state(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _index(path: Path, *, make: bool = False) -> int:
    """Open the folder of kept rows. Raise `OSError` for a link, and for what is not this user's own.

    The records may be a stranger's, who says what it is called and could have it lead anywhere.
    """
    place = path.parent / INDEX
    if make:
        with suppress(FileExistsError):
            place.mkdir()
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if os.fstat(folder).st_uid != os.geteuid():
        os.close(folder)
        raise PermissionError(errno.EPERM, "not the user's own folder", str(place))
    return folder


def _read(path: Path) -> list[Row] | None:
    """Return the rows kept of a file as it is now, else None."""
    try:
        folder = _index(path)
        try:
            content = read_file(_name(path), folder, path)
        finally:
            os.close(folder)
        budget.check_msgpack(content, path.name)
        kept = msgspec.msgpack.decode(content, type=_Kept)
    except (OSError, InvalidArgument, msgspec.MsgspecError, RecursionError):
        return None
    fresh = kept.version == _VERSION and (kept.size, kept.changed_ns) == _state(path)
    return kept.rows if fresh else None


def _write(path: Path, state: tuple[int, int], found: list[Row]) -> None:
    """Keep the rows where that is possible; a folder that may not be written does without."""
    beside = f".{_name(path)}.{secrets.token_hex(4)}.tmp"
    with suppress(OSError):
        folder = _index(path, make=True)
        try:
            _create(beside, folder, msgspec.msgpack.encode(_Kept(_VERSION, *state, found)))
            os.replace(beside, _name(path), src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=folder)
            os.close(folder)


def _create(name: str, folder: int, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o644, dir_fd=folder), "wb") as file:
        file.write(content)


def _name(path: Path) -> str:
    return f"{path.name}.msgpack"
