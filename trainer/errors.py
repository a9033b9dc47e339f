"""Errors of the trainer.

TrainerError
├── ConfigError (ValueError)          options that contradict each other or the installed plugins
│   └── NothingToLearn                the first rollouts show that the run cannot begin to learn
├── RunFolderError (OSError)          the run folder cannot be created, written or resumed
├── CheckpointError (RuntimeError)    a checkpoint is incomplete or of another run
├── CopyError (RuntimeError)          a bucket that checkpoints are copied to is not reached, or refuses
├── BatchError (ValueError)           a recording or a credit that must not be trained on
├── LedgerError (ValueError)          the account of a step's tokens does not add up
├── Stopped (RuntimeError)            somebody wanted the run to end while it waited
└── Halted (RuntimeError)             the run stopped itself: too many failures, no experts, not finite
    ├── Lost                          a process of the run died, or cannot be reached: the others are of no use then
    └── OutageTooLong                 what was learned is sound, and ROCK is not there
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "BatchError",
    "CheckpointError",
    "ConfigError",
    "CopyError",
    "Halted",
    "LedgerError",
    "Lost",
    "NothingToLearn",
    "OutageTooLong",
    "RunFolderError",
    "Stopped",
    "TrainerError",
]


class TrainerError(Exception):
    """Base of every error the trainer raises on purpose; `exit_code` is what the command line returns."""

    exit_code: ClassVar[int] = 70


class ConfigError(TrainerError, ValueError):
    exit_code = 2


class NothingToLearn(ConfigError):
    pass


class RunFolderError(TrainerError, OSError):
    exit_code = 73


class CheckpointError(TrainerError, RuntimeError):
    exit_code = 65


class CopyError(TrainerError, RuntimeError):
    exit_code = 69


class BatchError(TrainerError, ValueError):
    exit_code = 65


class LedgerError(TrainerError, ValueError):
    pass


class Stopped(TrainerError, RuntimeError):
    exit_code = 75


class Halted(TrainerError, RuntimeError):
    exit_code = 75
    rollouts: Sequence[bytes] = ()
    """What had been played, encoded, where that is why (`rollout.failures.handing_over`)."""


class Lost(Halted):
    pass


class OutageTooLong(Halted):
    pass
