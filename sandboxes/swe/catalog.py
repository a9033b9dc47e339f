"""The tasks that come with the environment: folders of data files, read once.

Each folder of `tasks/` holds `task.toml`, the repository as the agent gets it (`repo/`), the tests it is graded by
(`hidden/`) and the reference solution (`solution.sh`, its actions separated by lines of `# ---`).
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rock_env.errors import InvalidArgument, nearest
from rock_env.spec import EnvParams, TaskSpec

__all__ = ["SweTask", "SweTasks", "load_task", "make_tasks", "task_names"]

_FOLDER = Path(__file__).parent / "tasks"
_HOW_TO_ACT = """\
You fix a bug in a small Python project. Each of your messages is one action: a shell command, either as plain text \
or in one ```bash block. You get its exit code and output. Folder and variables last from command to command. \
`python -m pytest` works. When you are done, send `submit`. You are graded by tests you cannot see.

The bug report:
"""


@dataclass(frozen=True, slots=True)
class SweTask:
    """One task's data. Files are (path relative to the project or to the verifier, content)."""

    name: str
    split: str
    report: str
    repo: tuple[tuple[str, bytes], ...]
    hidden: tuple[tuple[str, bytes], ...]
    fail_to_pass: tuple[str, ...]
    """Hidden tests that fail before the fix, as `file.py::test`."""
    pass_to_pass: tuple[str, ...]
    """Hidden tests that must go on passing."""
    solution: tuple[str, ...]
    """Actions that fix the bug, without the final `submit`."""


@cache
def task_names() -> tuple[str, ...]:
    """Return the names of all tasks, sorted."""
    return tuple(sorted(path.parent.name for path in _FOLDER.glob("*/task.toml")))


@cache
def load_task(name: str) -> SweTask:
    """Read a task. Raise `UnknownName`."""
    if name not in task_names():
        raise nearest("swe task", name, task_names())
    folder = _FOLDER / name
    head = tomllib.loads((folder / "task.toml").read_text())
    solution = (folder / "solution.sh").read_text().split("# ---\n")
    return SweTask(
        name=name,
        split=head["split"],
        report=head["report"].strip(),
        repo=_files(folder / "repo"),
        hidden=_files(folder / "hidden"),
        fail_to_pass=tuple(head["fail_to_pass"]),
        pass_to_pass=tuple(head["pass_to_pass"]),
        solution=tuple(action.strip() for action in solution),
    )


def _files(folder: Path) -> tuple[tuple[str, bytes], ...]:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return tuple((path.relative_to(folder).as_posix(), path.read_bytes()) for path in sorted(paths))


class SweTasks:
    """All tasks, by split; satisfies `TaskSource`."""

    splits: tuple[str, ...] = ("train", "held_out")

    def _names(self, split: str) -> tuple[str, ...]:
        if split not in self.splits:
            raise nearest("split", split, self.splits)
        return tuple(name for name in task_names() if load_task(name).split == split)

    def count(self, split: str) -> int:
        """Return how many tasks `split` has. Raise `UnknownName` for an unknown split."""
        return len(self._names(split))

    def get(self, split: str, index: int) -> TaskSpec:
        """Return task `index` of `split`. Raise `InvalidArgument` when out of range."""
        names = self._names(split)
        if not 0 <= index < len(names):
            raise InvalidArgument(
                f"no task {split}/{index}: split {split!r} has {len(names)} tasks, numbered from 0."
            )
        task = load_task(names[index])
        return TaskSpec(
            id=f"{split}/{index}",
            split=split,
            index=index,
            instruction=_HOW_TO_ACT + task.report,
            payload=task.name,
            files=tuple((f"{task.name}/{path}", content) for path, content in task.repo),
        )


def make_tasks(params: EnvParams) -> SweTasks:
    """Return the tasks; no argument changes them."""
    return SweTasks()
