"""Errors of the command line itself, beside `trainer.errors` (runs) and `rock_env.errors` (the service).

AleError                        exit code 1
├── RecordError (ValueError)    65  a record on disk is missing or unreadable
├── Diverged (RuntimeError)     1   a re-executed trajectory did not reproduce its record
├── NotRun (RuntimeError)       75  episodes that the environment or the policy could not play to their end
├── AgentFailed (RuntimeError)  70  a CLI agent did not end by itself with exit code 0
└── BadModel (ValueError)       65  a model that was fetched is not the one that was asked for

A command line that no command takes is Typer's `USAGE_ERROR` (2); `usage_message` is its one line. Typer brings a copy of
Click or uses Click itself, so that its errors are known by what they have.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

import typer

from rock_env import plugins
from rock_env.errors import did_you_mean

__all__ = [
    "USAGE_ERROR",
    "AgentFailed",
    "AleError",
    "BadModel",
    "Diverged",
    "NotRun",
    "RecordError",
    "usage_message",
]


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


class BadModel(AleError, ValueError):
    exit_code = 65


USAGE_ERROR: type[Exception] = next(
    kind for kind in typer.BadParameter.mro() if kind.__name__ == "UsageError"
)
"""What Typer raises for a command line that it cannot read."""
_EXTRA = re.compile(r"unexpected extra argument.*\((?P<word>\S+)[^()]*\)")


def usage_message(error: Any, meant: Callable[[str], str]) -> str:
    """Return what standard error says of a `USAGE_ERROR`: a line, or "" where help was shown in its place.

    `meant` is `option_names.meant`.
    """
    if type(error).__name__ == "NoArgsIsHelpError":
        return ""
    said = " ".join(error.format_message().split()).rstrip(".")
    said = f"{said[:1].lower()}{said[1:]}"
    context = error.ctx
    if context is None:
        return f"ale: {said}. See `ale --help`.\n"
    named = [name for param in context.command.params for name in param.opts]
    own = [name for name in named if name.startswith("--")]
    hint = ""
    if type(error).__name__ == "NoSuchOption":
        said = f"no such option of `{context.command_path}`: {error.option_name}"
        bare = error.option_name.lstrip("-").replace("-", "_")
        hint = (
            f" Give {bare.upper()} without a name."
            if bare in named
            else _option(error.option_name, own, meant)
        )
    elif (extra := _EXTRA.search(said)) and "--env" in own and extra["word"] in plugins.names("ale.envs"):
        hint = f" Did you mean --env {extra['word']}?"
    asked = "" if said.endswith("?") else "."
    return f"ale: {said}{asked}{hint} See `{context.command_path} --help`.\n"


def _option(typed: str, own: list[str], meant: Callable[[str], str]) -> str:
    """Return which option of a command, or which setting, was meant: by its meaning, then by its letters."""
    if "--set" in own and (setting := meant(typed.lstrip("-").replace("-", "_"))):
        option = f"--{setting}" if f"--{setting}" in own else f"-s {setting}=VALUE"
        return f" Did you mean '{option}'?"
    begun = [name for name in own if typed.startswith(name) or name.startswith(typed)]
    return did_you_mean(typed, own) or (f" Did you mean {max(begun, key=len)!r}?" if begun else "")
