"""The errors of the agent runtime, apart from those it passes on (`rock_env.errors`, `policy.PolicyError`).

    StoreError                                the trajectory store refused; always names the file
    ├── CorruptTrajectory (ValueError)        bytes that are not what a writer wrote
    │   └── TooLarge                          a record beyond the budget (`rock_env.foreign.budget`); it was not read
    ├── UnknownSchema (ValueError)            a file of a newer (or unknown) schema version
    └── StoreWriteFailed (OSError)            disk full or not writable; nothing committed is lost
    InvalidTrajectory (ValueError)            a record that breaks an invariant: a bug, never data

Every class is picklable (Ray) and carries the `exit_code` that the command line returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

__all__ = [
    "CorruptTrajectory",
    "InvalidTrajectory",
    "StoreError",
    "StoreWriteFailed",
    "TooLarge",
    "UnknownSchema",
]


class StoreError(Exception):
    """Base of the store's errors. `path` is the file, `offset` the byte of the fault (-1: the whole file)."""

    exit_code: ClassVar[int] = 74

    def __init__(self, message: str, *, path: Path, offset: int = -1) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.offset = offset

    def __str__(self) -> str:  # OSError kin would format errno and strerror
        return self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.path, self.offset))


def _rebuild(kind: type[StoreError], message: str, path: Path, offset: int) -> StoreError:
    return kind(message, path=path, offset=offset)


class CorruptTrajectory(StoreError, ValueError):
    exit_code = 65


class TooLarge(CorruptTrajectory):
    pass


class UnknownSchema(StoreError, ValueError):
    exit_code = 65


class StoreWriteFailed(StoreError, OSError):
    exit_code = 74


class InvalidTrajectory(ValueError):
    """A trajectory breaks an invariant; the message names it, the turn, what was got and expected."""
