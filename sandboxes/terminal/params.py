"""The environment's arguments."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rock_env.spec import EnvParams

__all__ = ["TerminalParams", "narrow"]


class TerminalParams(EnvParams):
    """Arguments of the `terminal` environment."""

    family: Literal["all", "files", "archives", "processes", "git", "data"] = "all"
    """Only tasks of this family."""
    partial: bool = False
    """Reward is the share of checks passed, if nothing was spoilt; else all or nothing."""
    max_turns: int = Field(default=30, ge=1, le=1000)
    """After so many actions the episode is cut off."""
    command_timeout_s: float = Field(default=20.0, gt=0, le=600)
    """A command that runs longer is killed; the agent is told and goes on."""
    max_output_chars: int = Field(default=2000, ge=200, le=100_000)
    """Of a command's output the agent sees so much, beginning and end."""


narrow = TerminalParams.narrowed
