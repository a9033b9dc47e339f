"""Hand-written tasks: folders of data files, read once.

Each folder of `tasks/` holds `task.toml`, the repository as the agent gets it (`repo/`), the tests it is graded by
(`hidden/`) and the reference solution (`solution.sh`, its actions separated by lines of `# ---`).
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from rock_env.tools import Bash, render_call
from sandboxes.swe.data import Files, SweTask

__all__ = ["keys", "load"]

_FOLDER = Path(__file__).parent / "tasks"


@cache
def keys(split: str) -> tuple[str, ...]:
    """Return the names of a split's tasks, sorted."""
    return tuple(
        sorted(
            path.parent.name
            for path in _FOLDER.glob("*/task.toml")
            if tomllib.loads(path.read_text())["split"] == split
        )
    )


@cache
def load(key: str) -> SweTask:
    """Read a task. Raise `KeyError` for an unknown one."""
    folder = _FOLDER / key
    if not (folder / "task.toml").is_file():
        raise KeyError(key)
    head = tomllib.loads((folder / "task.toml").read_text())
    solution = (folder / "solution.sh").read_text().split("# ---\n")
    return SweTask(
        key=key,
        name=key,
        report=head["report"].strip(),
        repo=_files(folder / "repo"),
        hidden=_files(folder / "hidden"),
        fail_to_pass=tuple(head["fail_to_pass"]),
        pass_to_pass=tuple(head["pass_to_pass"]),
        solution=tuple(render_call(Bash(action.strip())) for action in solution),
    )


def _files(folder: Path) -> Files:
    paths = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return tuple((path.relative_to(folder).as_posix(), path.read_bytes()) for path in sorted(paths))
