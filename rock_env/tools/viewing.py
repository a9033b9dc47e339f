"""How a file's lines and a folder's entries are shown. Pure functions: no box, no files."""

from __future__ import annotations

import stat
from collections.abc import Sequence

from rock_env.sandbox import FileEntry
from rock_env.tools.calls import View
from rock_env.tools.edits import RefusedCall, decode_text

__all__ = ["show_file", "show_folder"]


def show_file(call: View, content: bytes, *, max_chars: int) -> str | RefusedCall:
    """Return `PATH (lines A-B of N)` and these lines as they are; as many as fit."""
    if decode_text(content) is None:
        return RefusedCall(
            f"{call.path} is a binary file of {len(content)} bytes; look into it with bash: od -c"
        )
    lines = content.decode(errors="replace").split("\n")
    if not lines[-1]:
        lines.pop()
    lines = [line.removesuffix("\r") for line in lines]
    if not lines:
        return f"{call.path} (empty)"
    first, asked = call.first or 1, min(call.last or len(lines), len(lines))
    if first > len(lines):
        return RefusedCall(f"{call.path} has {len(lines)} lines: there is no line {first}")
    if call.last is not None and call.last < first:
        return RefusedCall(f"first line {first} comes after last line {call.last}: view PATH FIRST LAST")
    last, size = first, len(lines[first - 1])
    while last < asked and size + 1 + len(lines[last]) <= max_chars:
        size += 1 + len(lines[last])
        last += 1
    shown = lines[first - 1 : last]
    notes = []
    if size > max_chars:  # one line alone is too long
        notes.append(
            f"[... {size - max_chars} characters of line {first} left out; "
            f"see them with bash: sed -n {first}p FILE | cut -c {max_chars + 1}- ...]"
        )
        shown = [shown[0][:max_chars]]
    if last < asked:
        notes.append(
            f"[... {asked - last} lines left out; see them with view {call.path} {last + 1} {asked} ...]"
        )
    return "\n".join([f"{call.path} (lines {first}-{last} of {len(lines)})", *shown, *notes])


def show_folder(path: str, entries: Sequence[FileEntry], *, max_chars: int) -> str:
    """Return a folder's entries by name, as many as fit; folders end in `/`, links tell where they lead."""
    names = sorted(_name(entry) for entry in entries)
    shown, size = 0, 0
    while shown < len(names) and size + len(names[shown]) + 1 <= max_chars:
        size += len(names[shown]) + 1
        shown += 1
    head = f"{path} (folder, {len(names)} {'entry' if len(names) == 1 else 'entries'})"
    left_out = len(names) - shown
    notes = [f"[... {left_out} entries left out; see them with bash: ls -A | tail -n {left_out} ...]"]
    return "\n".join([head, *names[:shown], *(notes if left_out else [])])


def _name(entry: FileEntry) -> str:
    if entry.symlink_target:
        return f"{entry.path} -> {entry.symlink_target}"
    return f"{entry.path}/" if stat.S_ISDIR(entry.mode) else entry.path
