"""The tool calls an agent can make, as values. Made by the faces (text, JSON, MCP), carried out by `Toolbox`."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "TOOLS",
    "Bash",
    "Edit",
    "Malformed",
    "RunTests",
    "Submit",
    "ToolCall",
    "Undo",
    "View",
]


@dataclass(frozen=True, slots=True)
class Bash:
    """Run a shell command, of one or more lines, in the session."""

    command: str


@dataclass(frozen=True, slots=True)
class View:
    """Show a file's lines `first` to `last` (from 1, both shown), or a folder's entries."""

    path: str
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `new` where `old` is, which must be in the file exactly once. An empty `old` creates the file."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Undo:
    """Take the last edit back that was not taken back yet."""


@dataclass(frozen=True, slots=True)
class RunTests:
    """Run the project's tests; `args` are added to the command, and the shell reads them."""

    args: str = ""


@dataclass(frozen=True, slots=True)
class Submit:
    """End the task."""


ToolCall = Bash | View | Edit | Undo | RunTests | Submit
TOOLS: tuple[str, ...] = ("bash", "view", "edit", "undo", "run_tests", "submit")


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that is no tool call, and why."""

    problem: str
