"""One task of a task set, whatever format it was written in: values only.

Made by the readers of the formats (Harbor, Terminal-Bench, SWE-bench and its kin), played by the task-set environment,
graded by `rock_env.grading`. Nothing here runs or reads a file. All paths inside a box are absolute or relative to the
box's working folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rock_env.spec import NetworkPolicy, Resources

__all__ = ["Build", "GradeIn", "Task", "TaskFile", "Unread", "Verifier"]

GradeIn = Literal["pristine", "fork", "same"]
"""Where a verifier runs: `pristine`, a new box that gets only what the task says is the agent's work; `fork`, a copy of the
agent's files without its processes; `same`, the agent's own box with its processes, for tasks whose result is a
running service (an agent may leave something behind there that changes what the verifier sees)."""


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One file put into a box."""

    path: str
    content: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Build:
    """The image of a task: built from a folder with a Dockerfile, or named."""

    image: str = ""
    """A ready image; empty where `context` is built."""
    context: Path | None = None
    """Folder that is sent to the builder."""
    dockerfile: str = "Dockerfile"
    """Path of the Dockerfile in `context`."""
    args: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 3600.0
    """How long the build may take."""


@dataclass(frozen=True, slots=True)
class Verifier:
    """How the state that the agent leaves is graded. Its files enter a box only after the agent has ended."""

    command: tuple[str, ...]
    """Program and arguments."""
    parser: str
    """A name of `rock_env.grading.PARSERS`: how output (or `report`) becomes outcomes per test, or a reward."""
    files: tuple[TaskFile, ...] = ()
    workdir: str = ""
    """Where the command runs; empty is the box's working folder."""
    env: tuple[tuple[str, str], ...] = ()
    report: str = ""
    """File or folder that the parser reads instead of the output (JUnit XML, a reward file)."""
    must_pass: tuple[str, ...] = ()
    """Tests that the agent's work has to make pass (FAIL_TO_PASS); empty: every test found."""
    keep_passing: tuple[str, ...] = ()
    """Tests that must not break (PASS_TO_PASS)."""
    cut_at_space: bool = False
    """A test with no outcome stands for those that begin with its name and a space: published names end there."""
    partial: bool = False
    """Reward is the share of `must_pass` that passes, if all of `keep_passing` do; else all or nothing."""
    timeout_s: float = 120.0
    """Its own reserve: not part of the agent's time."""
    grade_in: GradeIn = "fork"
    in_shell: bool = False
    """It runs where the shell that the agent left was, with variables of that shell (see `left_shell`)."""
    download: str = ""
    """The first command of its scripts that fetches from a network, where the box has none."""


@dataclass(frozen=True, slots=True)
class Task:
    """One task, ready to be played."""

    name: str
    instruction: str
    build: Build
    verifier: Verifier
    solution: tuple[str, ...] = ()
    """Tool actions (text form) that solve it; without, the task has no oracle. `submit` is added."""
    solution_files: tuple[TaskFile, ...] = ()
    """Put into the box only where the solution is played."""
    files: tuple[TaskFile, ...] = ()
    """Put into the box before the agent starts."""
    setup: tuple[str, ...] = ()
    """Shell scripts run before the agent starts, as root of the box or its user."""
    workdir: str = ""
    """Where the agent starts; empty is the image's working folder."""
    env: tuple[tuple[str, str], ...] = ()
    test_command: str = ""
    """What the tool `run_tests` runs; empty: the task offers no such tool."""
    resources: Resources = field(default_factory=Resources)
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    agent_timeout_s: float = 600.0
    split: str = ""
    """`train` or `held_out` where the format says so; empty: decided by the content's hash."""
    labels: tuple[tuple[str, str], ...] = ()
    """What the format says about it (difficulty, category, repository), as sorted pairs."""
    source: str = ""
    """The format and the place it was read from, for messages."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A task that cannot be read, in the place of one."""

    name: str
    """Its folder, its file, or its row of a file."""
    why: str
    """What is wrong with it, and where."""
