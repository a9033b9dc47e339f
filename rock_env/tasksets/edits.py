"""A change of files as the tool actions that make it, one after another, each exact: the expert trajectory of a patch.

Used by the SWE-bench reader. A changed place becomes one `edit`, with as many lines around it as make its old text
occur once in the file as it is by then. What is no text, or cannot be said so, becomes a shell command.
"""

from __future__ import annotations

import base64
import difflib
import shlex
from collections.abc import Mapping

from rock_env.tools.calls import Bash, Edit
from rock_env.tools.edits import Applied, apply_edit
from rock_env.tools.text import render_call

__all__ = ["edits_between", "write_action"]


def write_action(path: str, content: bytes, mode: int = 0o644) -> str:
    """Return the `bash` action that writes a file whatever it holds."""
    place, folder = shlex.quote(path), path.rpartition("/")[0]
    made = f"mkdir -p {shlex.quote(folder)} && " if folder else ""
    changed = f"\nchmod {mode:o} {place}" if mode & 0o111 else ""
    text = _text(content)
    if text is not None and text.endswith("\n"):
        mark = "END"
        while mark in text.splitlines():
            mark += "_"
        return render_call(Bash(f"{made}cat >{place} <<'{mark}'\n{text}{mark}{changed}"))
    encoded = base64.encodebytes(content).decode()
    return render_call(Bash(f"{made}base64 -d >{place} <<'END'\n{encoded}END{changed}"))


def edits_between(
    before: Mapping[str, bytes], after: Mapping[str, bytes], modes: Mapping[str, int]
) -> tuple[str, ...]:
    """Return the actions that make the files `after` of `before`; a path that only one has was made or removed."""
    actions = []
    for path in sorted({*before, *after}):
        if path not in after:
            actions.append(render_call(Bash(f"rm {shlex.quote(path)}")))
        elif before.get(path) != after[path]:
            steps = _steps(path, before[path], after[path]) if path in before else None
            actions += steps or [write_action(path, after[path], modes.get(path, 0o644))]
    return tuple(actions)


def _text(content: bytes) -> str | None:
    """Return what can be put into a message and read back as it is."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or "\r" in text else text


def _steps(path: str, before: bytes, after: bytes) -> list[str] | None:
    """Return the edits of one file; None where they cannot be said."""
    old_text, new_text = _text(before), _text(after)
    if old_text is None or new_text is None or path.split() != [path]:
        return None
    old, new = old_text.split("\n"), new_text.split("\n")
    actions, now, shift = [], old, 0
    for kind, start, end, new_start, new_end in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if kind == "equal":
            continue
        fresh = new[new_start:new_end]
        goal = [*now[: start + shift], *fresh, *now[end + shift :]]
        action = _step(path, now, goal, (start + shift, end + shift))
        if action is None:
            return None
        actions.append(action)
        now, shift = goal, shift + len(fresh) - (end - start)
    return actions


def _step(path: str, now: list[str], goal: list[str], place: tuple[int, int]) -> str | None:
    """Return the edit that turns the lines `now` into `goal`, which differ at `place`, with the fewest lines around it."""
    first, last = place
    grown = len(goal) - len(now)
    content, wanted = "\n".join(now).encode(), "\n".join(goal).encode()
    for around in range(max(first, len(now) - last) + 1):
        low, high = max(0, first - around), min(len(now), last + around)
        edit = Edit(path, "\n".join(now[low:high]), "\n".join(goal[low : high + grown]))
        done = apply_edit(content, edit) if edit.old else None
        if isinstance(done, Applied) and done.content == wanted:
            return render_call(edit)
    return None
