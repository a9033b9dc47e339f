"""Trajectories on disk: the files of `RUN/trajectories/`, readable after any crash.

Two kinds of file, one frame format (`frames`):

A *segment* (`write_segment`; one per training step) appears whole or not at all: it is written aside, synced and
renamed, and ends in a seal. A *log* grew record by record and may end in the tail that a killed process left; logs are
read, and nothing writes them any more. Nothing here looks into a trajectory.
"""

from __future__ import annotations

import errno
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from agent_runtime import frames
from agent_runtime.errors import CorruptTrajectory, StoreError, StoreWriteFailed
from agent_runtime.types import Trajectory
from rock_env.foreign.files import open_regular
from rock_env.store.whole_file import write_whole

__all__ = [
    "FOLDER",
    "SUFFIX",
    "SegmentInfo",
    "TrajectoryReader",
    "decode",
    "encode",
    "files_at",
    "index",
    "kept_segment",
    "read_at",
    "read_encoded",
    "read_segment",
    "segment_path",
    "trajectory_files",
    "write_segment",
]

logger = logging.getLogger(__name__)

FOLDER = "trajectories"
SUFFIX = ".rollouts"
_OLD_SUFFIX = ".traj"
"""Of schema 1, whose files are read; SWE-agent's JSON files end in it too."""
_NAME = re.compile(r"(?P<kind>[a-z][a-z_]*)(-(?P<step>[0-9]{6,}))?(\.rollouts|\.traj)")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def segment_path(run_folder: Path | str, kind: str, step: int | None = None) -> Path:
    """Return where a run keeps a file: `step-000012.rollouts`, `eval-000012.rollouts`, `expert.rollouts`.

    Where only an earlier version wrote that file, `kept_segment` has its path.
    """
    name = kind if step is None else f"{kind}-{step:06d}"
    return Path(run_folder) / FOLDER / f"{name}{SUFFIX}"


def kept_segment(run_folder: Path | str, kind: str, step: int | None = None) -> Path:
    """Return where a run has kept a file, by this version or an earlier one: `segment_path` if there is none."""
    path = segment_path(run_folder, kind, step)
    old = path.with_suffix(_OLD_SUFFIX)
    return old if old.is_file() and not path.exists() else path


def files_at(place: Path) -> list[Path]:
    """Return the trajectory files at a place: the one file, a run folder's, or any folder's; empty where there are none."""
    if place.is_file():
        return [place]
    return trajectory_files(place / FOLDER) or trajectory_files(place)


def trajectory_files(folder: Path | str) -> list[Path]:
    """Return a folder's trajectory files by name. A file that was written anew hides the earlier version's of its name."""
    found = {path.stem: path for path in Path(folder).glob(f"*{_OLD_SUFFIX}")}
    found |= {path.stem: path for path in Path(folder).glob(f"*{SUFFIX}")}
    return [found[stem] for stem in sorted(found)]


class TrajectoryReader:
    """Iterate lazily over the trajectories of one file, segment or log. Each iteration reads anew.

    Raises `CorruptTrajectory` at the first damaged byte, after yielding what is intact before it, and
    `UnknownSchema` for a file that another version wrote. With a list `damaged` it passes over damaged records, yields
    all that are intact, and adds an error to the list for each that is not.
    """

    def __init__(self, path: Path | str, *, damaged: list[CorruptTrajectory] | None = None) -> None:
        self.path = Path(path)
        self._damaged = damaged

    def __iter__(self) -> Iterator[Trajectory]:
        return (trajectory for _, trajectory in self.located())

    def located(self) -> Iterator[tuple[int, Trajectory]]:
        """Yield each trajectory with the byte at which its record begins, for `read_at`."""
        with _opened(self.path) as file:
            opened = frames.FrameFile(file, self.path)
            for frame in opened.walk() if self._damaged is None else opened.salvage(self._damaged):
                try:
                    trajectory = frames.decode(frame.payload, self.path, frame.offset)
                except CorruptTrajectory as error:
                    if self._damaged is None:
                        raise
                    self._damaged.append(error)
                else:
                    yield frame.offset, trajectory


def read_at(path: Path | str, offset: int) -> Trajectory:
    """Return the trajectory whose record begins at a byte of a file. Raise `CorruptTrajectory` where none does."""
    path = Path(path)
    with _opened(path) as file:
        return frames.decode(frames.FrameFile(file, path).at(offset), path, offset)


def read_segment(path: Path | str) -> Iterator[Trajectory]:
    """Yield the trajectories of one file in the order written. Raise as `TrajectoryReader` does."""
    return iter(TrajectoryReader(path))


def encode(trajectory: Trajectory) -> bytes:
    """Return the trajectory as bytes: in this form it crosses processes, and compressed it is stored."""
    return frames.encode(trajectory)


def decode(encoded: bytes) -> Trajectory:
    """Return the trajectory that `encode` was given. Raise `CorruptTrajectory`."""
    return frames.decode(encoded, Path("(memory)"), 0)


def read_encoded(path: Path | str) -> Iterator[bytes]:
    """Yield the trajectories of one file as `encode` gives them. Raise as `TrajectoryReader` does."""
    return map(encode, read_segment(path))


def write_segment(path: Path | str, trajectories: Iterable[Trajectory | bytes]) -> int:
    """Write a sealed file, all or nothing, and return its size in bytes; an older file of that name is replaced.

    Takes trajectories as they are or as `encode` gives them; creates the folder. Raise `StoreWriteFailed`,
    leaving what was there before.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # a rename would replace a device such as the null device
        raise StoreWriteFailed(
            f"cannot write trajectories to {path}: it is no regular file. Name a file that may be replaced.",
            path=path,
        )
    size = 0

    def write(beside: Path) -> None:
        nonlocal size
        encoded = (item if isinstance(item, bytes) else frames.encode(item) for item in trajectories)
        with beside.open("wb") as file:
            for part in frames.segment(encoded):
                size += file.write(part)

    with _reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, write)
    return size


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """One file of a run's trajectories."""

    path: Path
    kind: str
    """`step` (training), `eval`, `expert`, or another log's name."""
    step: int | None
    trajectories: int
    """How many intact records it holds."""
    size_bytes: int
    problem: str = ""
    """Why the file cannot be read to its end; "" if it can, as far as its headers tell."""


def index(run_folder: Path | str) -> list[SegmentInfo]:
    """List the trajectory files of a run by step, then kind; a damaged one is listed with its problem.

    Reads headers only. A run without trajectories gives an empty list; raise `StoreError` if there is no run.
    """
    run_folder = Path(run_folder)
    if not run_folder.is_dir():
        raise StoreError(
            f"no run folder {run_folder}. Name a folder that `ale train` wrote.", path=run_folder
        )
    found = []
    for path in trajectory_files(run_folder / FOLDER):
        match = _NAME.fullmatch(path.name)
        if match and path.is_file():
            step = None if match["step"] is None else int(match["step"])
            found.append(_inspect(path, match["kind"], step))
    return sorted(found, key=lambda info: (-1 if info.step is None else info.step, info.kind))


def _inspect(path: Path, kind: str, step: int | None) -> SegmentInfo:
    size = path.stat().st_size
    count = 0
    try:
        with _opened(path) as file:
            opened = frames.FrameFile(file, path)
            sealed = opened.sealed_count()
            if sealed is not None:
                return SegmentInfo(path, kind, step, sealed, size)
            for _ in opened.walk(payloads=False):
                count += 1
    except StoreError as error:
        return SegmentInfo(path, kind, step, count, size, problem=str(error))
    return SegmentInfo(path, kind, step, count, size)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        file = open_regular(path)
    except OSError as error:
        raise StoreError(
            f"cannot read the trajectory file {path}: {error.strerror}. Check the path and its rights.",
            path=path,
        ) from error
    with file:
        yield file


@contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Turn an `OSError` of writing into the store's error, with the remedy that fits."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        remedy = (
            "Free space (or raise the quota or file size limit) and try again; what was committed is intact."
            if error.errno in _FULL
            else "Choose a run folder that you may write to."
        )
        raise StoreWriteFailed(
            f"cannot write trajectories to {path}: {error.strerror}. {remedy}", path=path
        ) from error
