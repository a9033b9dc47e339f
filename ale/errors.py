"""Errors of the command line itself, beside `trainer.errors` (runs) and `rock_env.errors` (the service).

AleError                        exit code 1
├── RecordError (ValueError)    65  a record on disk is missing or unreadable
├── Diverged (RuntimeError)     1   a re-executed trajectory did not reproduce its record
├── NotRun (RuntimeError)       75  episodes that the environment or the policy could not play to their end
└── AgentFailed (RuntimeError)  70  a CLI agent did not end by itself with exit code 0
"""

from __future__ import annotations

from typing import ClassVar

__all__ = ["AgentFailed", "AleError", "Diverged", "NotRun", "RecordError"]


class AleError(Exception):
    """Base of every error the command line raises on purpose; `exit_code` is what the process returns."""

    exit_code: ClassVar[int] = 1


class RecordError(AleError, ValueError):
    exit_code = 65


class Diverged(AleError, RuntimeError):
    exit_code = 1


class NotRun(AleError, RuntimeError):
    exit_code = 75


class AgentFailed(AleError, RuntimeError):
    exit_code = 70
