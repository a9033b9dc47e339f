"""The environment's arguments."""

from __future__ import annotations

from pydantic import Field

from rock_env.spec import EnvParams

__all__ = ["SweParams"]


class SweParams(EnvParams):
    """Arguments of the `swe` environment."""

    max_turns: int = Field(default=30, ge=1, le=1000)
    """After so many actions the episode is cut off."""
    command_timeout_s: float = Field(default=20.0, gt=0, le=600)
    """A command that runs longer is killed; the agent is told and goes on."""
    max_output_chars: int = Field(default=2000, ge=200, le=100_000)
    """Of a command's output the agent sees so much, beginning and end."""
