"""How an expert fixes a planted bug, as actions: look at the tests, look at the code, perhaps err, repair, submit.

What varies from task to task is drawn from the task's key, so a task always has the same trajectory.
"""

from __future__ import annotations

import hashlib

from rock_env.tools import Edit, RunTests, ToolCall, Undo, View, render_call

__all__ = ["trajectory"]

_WRONG_FILE_SHARE = 4
"""One first look of so many goes to another file."""


def trajectory(
    key: str, *, file: str, fix: tuple[str, str], slip: tuple[str, str] | None, others: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the actions that fix the bug, without the final `submit`. `fix` and `slip` are (old, new) in `file`."""
    calls: list[ToolCall] = [RunTests()]
    draw = int(hashlib.sha256(f"expert:{key}".encode()).hexdigest(), 16)
    modules = [path for path in others if not path.startswith("tests/") and not path.endswith("__init__.py")]
    wrong = modules or [path for path in others if path.startswith("tests/")]
    if draw % _WRONG_FILE_SHARE == 0 and wrong:
        calls.append(View(wrong[draw // _WRONG_FILE_SHARE % len(wrong)]))
    calls.append(View(file))
    if slip is not None:
        calls += [Edit(file, *slip), RunTests(), Undo()]
    calls += [Edit(file, *fix), RunTests()]
    return tuple(render_call(call) for call in calls)
