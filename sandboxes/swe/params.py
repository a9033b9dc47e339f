"""The environment's arguments."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from rock_env.arguments import items
from rock_env.spec import EnvParams, HostPath
from sandboxes.swe.bugs.mutate import FAMILIES

__all__ = ["SweParams"]


class SweParams(EnvParams):
    """Arguments of the `swe` environment."""

    source: Literal["factory", "handmade", "quixbugs"] = "factory"
    """Planted bugs in the built-in packages, three hand-written tasks, or a QuixBugs checkout at `path`."""
    path: HostPath = ""
    """Folder of the QuixBugs checkout: a path, or the name of a server's data."""
    families: str = ""
    """Only these bug families, as `off_by_one,wrong_operator`; empty: all of a split's."""
    min_difficulty: float = Field(default=0.0, ge=0, le=1)
    """Only tasks at least so hard (README: Tasks)."""
    max_difficulty: float = Field(default=1.0, ge=0, le=1)
    """Only tasks at most so hard."""
    max_turns: int = Field(default=24, ge=1, le=1000)
    """After so many actions the episode is cut off."""
    command_timeout_s: float = Field(default=20.0, gt=0, le=600)
    """A command that runs longer is killed; the agent is told and goes on."""
    max_output_chars: int = Field(default=2000, ge=200, le=100_000)
    """Of a command's output or a file the agent sees so much."""

    @property
    def chosen_families(self) -> tuple[str, ...]:
        """Return `families` one by one; empty for all."""
        return items(self.families)

    @model_validator(mode="after")
    def _fits(self) -> SweParams:
        unknown = [name for name in self.chosen_families if name not in FAMILIES]
        if unknown:
            raise ValueError(f"no bug family {unknown[0]!r}; the families are {', '.join(FAMILIES)}")
        if self.source == "quixbugs" and not self.path:
            raise ValueError("source=quixbugs needs path=FOLDER, the QuixBugs checkout")
        if self.source != "quixbugs" and self.path:
            raise ValueError(f"path is for source=quixbugs, not {self.source}")
        chosen = self.families or self.min_difficulty > 0.0 or self.max_difficulty < 1.0
        if self.source != "factory" and chosen:
            raise ValueError("families and difficulty are for source=factory: other tasks are not rated")
        return self
