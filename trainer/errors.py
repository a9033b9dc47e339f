"""Errors of the trainer.

TrainerError
├── ConfigError (ValueError)          options that contradict each other or the installed plugins
├── RunFolderError (OSError)          the run folder cannot be created, written or resumed
├── CheckpointError (RuntimeError)    a checkpoint is incomplete or of another run
└── Halted (RuntimeError)             the run stopped itself: too many failures, no experts, not finite
"""

from __future__ import annotations

from typing import ClassVar

__all__ = ["CheckpointError", "ConfigError", "Halted", "RunFolderError", "TrainerError"]


class TrainerError(Exception):
    """Base of every error the trainer raises on purpose; `exit_code` is what the command line returns."""

    exit_code: ClassVar[int] = 70


class ConfigError(TrainerError, ValueError):
    exit_code = 2


class RunFolderError(TrainerError, OSError):
    exit_code = 73


class CheckpointError(TrainerError, RuntimeError):
    exit_code = 65


class Halted(TrainerError, RuntimeError):
    exit_code = 75
