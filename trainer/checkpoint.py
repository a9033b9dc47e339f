"""Checkpoints: a folder per step, complete or absent.

A checkpoint is written beside its place and renamed there, so `kill -9` at any moment leaves the previous one. It holds
the engine's part (parameters, optimizer) and the controller's (`state.msgpack`); the rest of a run is derived. Steps count
from 1, 0 is the end of the warm-up, and -N is N warm-up epochs before it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rock_env.errors import InvalidArgument
from trainer.errors import CheckpointError

__all__ = ["before_step", "damaged", "latest", "place", "read_state", "save", "to_resume"]

_STATE = "state.msgpack"
_STEP, _WARMUP = "step-", "warmup-"
_T = TypeVar("_T")


def save(folder: Path, step: int, state: Any, *, engine: Callable[[Path], None], keep: int) -> Path:
    """Write checkpoint `step` atomically and remove all but the newest `keep`. Raise `OSError` when the disk refuses.

    One that is there already is kept: a step has one state, and to write it again would risk it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = place(folder, step)
    temporary = folder / f".{final.name}.tmp"
    if (final / _STATE).is_file():
        return final
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        engine(temporary)
        (temporary / _STATE).write_bytes(msgspec.msgpack.encode(state))
        for path in temporary.iterdir():
            _sync(path)
        _sync(temporary)
        shutil.rmtree(final, ignore_errors=True)  # incomplete, or it would have been kept
        temporary.rename(final)
        _sync(folder)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    for old in _complete(folder)[:-keep]:
        shutil.rmtree(old)
    return final


def latest(folder: Path) -> Path | None:
    """Return the newest complete checkpoint, or None."""
    found = _complete(folder)
    return found[-1] if found else None


def place(folder: Path, step: int) -> Path:
    """Return where the checkpoint of a step is kept."""
    return folder / (f"{_STEP}{step:06d}" if step >= 0 else f"{_WARMUP}{-step:06d}")


def before_step(folder: Path, step: int) -> tuple[Path, int]:
    """Return the newest complete checkpoint that step `step` comes after, and its number; those of a warm-up are none.

    Raise `CheckpointError` where none is kept.
    """
    kept = {
        int(path.name.removeprefix(_STEP)): path for path in _complete(folder) if path.name.startswith(_STEP)
    }
    earlier = [number for number in kept if number < step]
    if not earlier:
        known = ", ".join(map(str, kept)) or "none"
        raise CheckpointError(
            f"no checkpoint before step {step} is kept in {folder}: got {known}, expected one of 0 to {step - 1}. A run "
            "keeps more of them with checkpoint.keep, and one of each step with checkpoint.every=1."
        )
    return kept[max(earlier)], max(earlier)


def to_resume(folder: Path, kind: type[_T], *, steps_done: int) -> tuple[Path, _T] | None:
    """Return the newest checkpoint and the controller's state in it; None where a run was ended before its first.

    Raise `CheckpointError` for one that is damaged, and where none is left of a run that has done steps.
    """
    found = _numbered(folder)
    if found:
        return found[-1], read_state(found[-1], kind)
    if steps_done:
        raise CheckpointError(
            f"no checkpoint is left in {folder}, and the run has done {steps_done} steps: it would start over. Put one "
            "back, or start another run with --run NAME."
        )
    return None


def read_state(checkpoint: Path, kind: type[_T]) -> _T:
    """Return the controller's state. Raise `CheckpointError` naming the file and the remedy."""
    path = checkpoint / _STATE
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointError(f"cannot read checkpoint {path}: {error}. {_before(checkpoint)}") from error


@contextmanager
def damaged(checkpoint: Path) -> Iterator[None]:
    """Turn what the engine says of its part of a checkpoint, as it reads it, into `CheckpointError`."""
    try:
        yield
    except InvalidArgument as error:
        raise CheckpointError(f"cannot resume from {checkpoint}: {error}") from error


def _before(checkpoint: Path) -> str:
    """Say what to do about a checkpoint that cannot be read."""
    older = [path.name for path in _complete(checkpoint.parent) if path != checkpoint]
    if older:
        return f"Remove the folder {checkpoint.name} to resume from {older[-1]}, the newest complete one beside it."
    return "There is none before it: put it back, or start another run with --run NAME."


def _complete(folder: Path) -> list[Path]:
    return [path for path in _numbered(folder) if (path / _STATE).is_file()]


def _numbered(folder: Path) -> list[Path]:
    """Return the checkpoints, complete or not, from the oldest to the newest."""
    numbers = {
        path: sign * int(number)
        for sign, prefix in ((1, _STEP), (-1, _WARMUP))
        for path in folder.glob(f"{prefix}*")
        if (number := path.name.removeprefix(prefix)).isdigit()
    }
    return sorted(numbers, key=lambda path: numbers[path])  # names from a million on are longer


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
