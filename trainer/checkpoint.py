"""Checkpoints: a folder per step, complete or absent. Called by the loop at step boundaries.

A checkpoint is written beside its place and renamed there, so `kill -9` at any moment leaves the previous one. It holds
the engine's part (parameters, optimizer) and the controller's (`state.msgpack`); the rest of a run is derived.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from trainer.errors import CheckpointError

__all__ = ["latest", "read_state", "save"]

_STATE = "state.msgpack"
_T = TypeVar("_T")


def save(folder: Path, step: int, state: Any, *, engine: Callable[[Path], None], keep: int) -> Path:
    """Write checkpoint `step` atomically and remove all but the newest `keep`. Raise `OSError` when the disk refuses.

    One that is there already is kept: a step has one state, and to write it again would risk it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final, temporary = folder / f"step-{step:06d}", folder / f".step-{step:06d}.tmp"
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


def read_state(checkpoint: Path, kind: type[_T]) -> _T:
    """Return the controller's state. Raise `CheckpointError` naming the file and the remedy."""
    path = checkpoint / _STATE
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise CheckpointError(
            f"cannot read checkpoint {path}: {error}. Remove the folder {checkpoint.name} to resume from the one before."
        ) from error


def _complete(folder: Path) -> list[Path]:
    numbered = {path: path.name.removeprefix("step-") for path in folder.glob("step-*")}
    found = [path for path, number in numbered.items() if number.isdigit() and (path / _STATE).is_file()]
    return sorted(found, key=lambda path: int(numbered[path]))  # names from a million on are longer


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
