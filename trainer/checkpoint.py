"""Checkpoints: a folder per step, complete or absent.

A checkpoint is written beside its place and renamed there, so `kill -9` at any moment leaves the previous one. What it holds
is fixed as it begins; a thread may write it to the disk while the run goes on (ADR 0089). It holds
the engine's part (parameters, optimizer), the controller's (`state.msgpack`) and the digests of both; the rest of a run is
derived. Steps count from 1, 0 is the end of the warm-up, and -N is N warm-up epochs before it. A run resumes from the
newest, and `ale replay` learns steps again from older ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from rock_env.errors import InvalidArgument
from rock_env.foreign.files import open_regular, parsed
from trainer.errors import CheckpointError
from trainer.files import digests

__all__ = [
    "Resumed",
    "before_step",
    "begin",
    "check",
    "damaged",
    "history",
    "kept_settings",
    "latest",
    "number_of",
    "place",
    "read_state",
    "to_resume",
]

_STATE = "state.msgpack"
_STEP, _WARMUP = "step-", "warmup-"
_T = TypeVar("_T")


class Resumed(NamedTuple):
    """Where a run goes on."""

    checkpoint: Path
    state: Any
    said: tuple[str, ...]
    """What whoever resumes should know: a line each."""


def begin(
    folder: Path,
    step: int,
    state: Any,
    *,
    engine: Callable[[Path], Callable[[], object]],
    keep: int,
    history_bytes: float = 0,
    settings: str = "",
    beside: Mapping[str, digests.Digest] | None = None,
) -> Callable[[], Path]:
    """Begin checkpoint `step` of `state` as it is now; return what writes it, which may be called on any thread.

    That writes it atomically, and then keeps the newest `keep` and of older ones those that `history` chooses. `engine`
    begins to fill a folder and returns what waits for that. One at a time. Raise `OSError`, here or there, when the disk
    refuses. One that is there already stays: a step has one state, and to write it again would risk it. `settings` and
    `beside` are the run's, to be checked with the checkpoint (`digests.Sealed`).
    """
    final = place(folder, step)
    temporary = folder / f".{final.name}.tmp"
    if (final / _STATE).is_file():
        return lambda: final
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    encoded = msgspec.msgpack.encode(state)
    with _removed_if_refused(temporary):
        filled = engine(temporary)

    def write() -> Path:
        with _removed_if_refused(temporary):
            filled()
            (temporary / _STATE).write_bytes(encoded)
            digests.seal(temporary, beside=beside, settings=settings)
            shutil.rmtree(final, ignore_errors=True)  # incomplete, or it would have been kept
            temporary.rename(final)
            digests.sync(folder)
        _thin_out(folder, keep, history_bytes)
        return final

    return write


def history(sizes: Mapping[int, int], most: float) -> set[int]:
    """Return which checkpoints to keep so that they take at most `most` bytes; `sizes` are by step, in bytes.

    They are those of every 1st, 2nd, 4th, 8th ... step, at the smallest of these distances that fits: what a later choice
    wants is then still there. That of step 0, the warm-up's end, is the last to go.
    """
    kept, distance = set(sizes), 1
    while kept and sum(sizes[step] for step in kept) > most:
        distance *= 2
        kept = {step for step in kept if step % distance == 0} if kept != {0} else set()
    return kept


def number_of(name: str) -> int | None:
    """Return the step of the checkpoint of this name; None where it is no checkpoint's."""
    for sign, prefix in ((1, _STEP), (-1, _WARMUP)):
        if name.startswith(prefix) and (digits := name.removeprefix(prefix)).isdigit():
            return sign * int(digits)
    return None


def latest(folder: Path) -> Path | None:
    """Return the newest complete checkpoint, or None."""
    return next(reversed(_complete(folder)), None)


def place(folder: Path, step: int) -> Path:
    """Return where the checkpoint of a step is kept."""
    return folder / (f"{_STEP}{step:06d}" if step >= 0 else f"{_WARMUP}{-step:06d}")


def before_step(folder: Path, step: int) -> tuple[Path, int]:
    """Return the newest complete checkpoint that step `step` comes after, and its number; those of a warm-up are none.

    Raise `CheckpointError` where none is kept.
    """
    kept = {number: path for path, number in _complete(folder).items() if number >= 0}
    earlier = [number for number in kept if number < step]
    if not earlier:
        known = f"{', '.join(map(str, kept))}: only later steps can be computed again" if kept else "none"
        raise CheckpointError(
            f"no checkpoint before step {step} is kept in {folder}: expected one of 0 to {step - 1}, got {known}. With a "
            "larger checkpoint.history_gb a run keeps more of them (`ale train --dry-run` says how many)."
        )
    return kept[max(earlier)], max(earlier)


def to_resume(folder: Path, kind: type[Any], *, steps_done: int) -> Resumed | None:
    """Return the newest checkpoint that is whole, with the controller's state; None where a run was ended before its first.

    Those after it are moved aside (`NAME.damaged`), so that their steps can be saved again. Raise `CheckpointError`, with
    nothing changed, where none is whole, and where none is left of a run that has done steps.
    """
    found = _numbered(folder)
    problems: list[tuple[Path, CheckpointError]] = []
    for path in reversed(found):
        try:
            has_digests = check(path)
            state = read_state(path, kind)
        except CheckpointError as error:
            problems.append((path, error))
            continue
        said = [_moved_aside(broken, why, path) for broken, why in problems]
        if not has_digests:
            said.append(
                f"note: {path} has no {digests.FILE}: it was written by an earlier version and is read unchecked"
            )
        return Resumed(path, state, tuple(said))
    if problems:
        all_of_them = (
            f"none of its {len(problems)} checkpoints is whole"
            if problems[1:]
            else "it is the only checkpoint"
        )
        raise CheckpointError(
            f"cannot resume: {problems[0][1]} Nothing was changed, and {all_of_them}: put one back, or start another run "
            "with --run NAME."
        )
    if steps_done:
        raise CheckpointError(
            f"no checkpoint is left in {folder}, and the run has done {steps_done} steps: it would start over. Put one "
            "back, or start another run with --run NAME."
        )
    return None


def check(checkpoint: Path) -> bool:
    """Check a run's checkpoint by its digests; return whether it has any. Raise `CheckpointError` naming what differs."""
    return digests.check(checkpoint, run=checkpoint.parent.parent)


def kept_settings(folder: Path) -> str:
    """Return the run's `config.toml` as the newest checkpoint keeps it; empty where none does, or can be read."""
    for path in reversed(_numbered(folder)):
        try:
            sealed = digests.read(path)
        except CheckpointError:
            continue
        if sealed is not None and sealed.settings:
            return sealed.settings
    return ""


def read_state(checkpoint: Path, kind: type[_T]) -> _T:
    """Return the controller's state. Raise `CheckpointError` naming the file."""
    path = checkpoint / _STATE
    try:
        with open_regular(path) as file:
            state: _T = parsed(partial(msgspec.msgpack.decode, type=kind), file.read(), "it is damaged")
            return state
    except (OSError, InvalidArgument) as error:
        raise CheckpointError(f"cannot read checkpoint {path}: {error}.") from error


@contextmanager
def damaged(checkpoint: Path) -> Iterator[None]:
    """Turn what the engine says of its part of a checkpoint, as it reads it, into `CheckpointError`."""
    try:
        yield
    except InvalidArgument as error:
        raise CheckpointError(f"cannot resume from {checkpoint}: {error}") from error


def _moved_aside(broken: Path, why: CheckpointError, whole: Path) -> str:
    """Make room for a step that will be done again; nothing is removed. Return what to say of it."""
    aside = broken.with_name(f"{broken.name}.damaged")
    count = 1
    while aside.exists():
        count += 1
        aside = broken.with_name(f"{broken.name}.damaged-{count}")
    broken.rename(aside)
    return (
        f"note: the run goes on from {whole.name}, because {broken.name} is damaged and now in {aside}: {why}"
    )


@contextmanager
def _removed_if_refused(temporary: Path) -> Iterator[None]:
    try:
        yield
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _thin_out(folder: Path, keep: int, history_bytes: float) -> None:
    older = {number: path for path, number in [*_complete(folder).items()][:-keep]}
    sizes = {number: _bytes(path) for number, path in older.items() if number >= 0}
    for number in older.keys() - history(sizes, history_bytes):
        _remove(older[number])


def _bytes(checkpoint: Path) -> int:
    return sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file())


def _remove(checkpoint: Path) -> None:
    """Remove a checkpoint so that a kill amid it leaves none that looks complete."""
    aside = checkpoint.with_name(f".{checkpoint.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    checkpoint.rename(aside)
    shutil.rmtree(aside)


def _complete(folder: Path) -> dict[Path, int]:
    return {path: number for path, number in _numbered(folder).items() if (path / _STATE).is_file()}


def _numbered(folder: Path) -> dict[Path, int]:
    """Return the checkpoints, complete or not, with their numbers, from the oldest to the newest."""
    numbers = {path: number for path in folder.glob("*") if (number := number_of(path.name)) is not None}
    return {path: numbers[path] for path in sorted(numbers, key=numbers.__getitem__)}
