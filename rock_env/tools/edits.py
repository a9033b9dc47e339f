"""Exact-match edits of a file's bytes, and what is needed to take them back. Pure functions: no box, no files.

The text to replace is found whatever the file's line breaks are, and what is put there gets the line breaks of that
place, so that a file with CRLF stays one. Bytes that are no UTF-8 are kept as they are.
"""

from __future__ import annotations

import difflib
import hashlib
from bisect import bisect_left
from dataclasses import dataclass

from rock_env.tools.calls import Edit

__all__ = ["Applied", "RefusedCall", "Undoing", "apply_edit", "decode_text", "digest", "take_back"]

_MOST_PLACES = 8
_MOST_COMPARED_LINES = 1000  # comparing takes about 10 us a line
_MOST_QUOTED_CHARS = 160


@dataclass(frozen=True, slots=True)
class Undoing:
    """How to get the bytes before an edit from the bytes after it."""

    path: str
    offset: int
    removed: bytes
    added: int
    """Length of what stands at `offset` since."""
    after: bytes
    """Digest of the whole file after the edit."""
    created: bool = False
    call: int = 0
    """Which of the episode's calls made the edit, counted from 1."""


@dataclass(frozen=True, slots=True)
class Applied:
    """A file's new content, what the edit did to which lines, and the way back."""

    content: bytes
    said: str
    undoing: Undoing


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """Why an edit was not made, and what to do."""

    problem: str


def digest(content: bytes) -> bytes:
    """Return what tells one content from another."""
    return hashlib.blake2b(content, digest_size=12).digest()


def decode_text(content: bytes) -> str | None:
    """Return a text file's characters, bytes that are no UTF-8 as surrogates; None for a binary file."""
    return None if b"\0" in content else content.decode(errors="surrogateescape")


def apply_edit(content: bytes, edit: Edit) -> Applied | RefusedCall:
    """Replace the one place where `edit.old` is."""
    raw = decode_text(content)
    if raw is None:
        return RefusedCall(f"{edit.path} is a binary file, which edit cannot change; use bash")
    text, breaks = _with_plain_breaks(raw)
    old, new = edit.old.replace("\r\n", "\n"), edit.new.replace("\r\n", "\n")
    if old == new:
        return RefusedCall("the old and the new text are the same: nothing to change")
    places = _places(text, old)
    if not places:
        return RefusedCall(_no_match(edit.path, text, old))
    if len(places) > 1:
        return RefusedCall(_many_matches(edit.path, text, places))
    start = places[0]
    end = start + len(old)
    whole_lines = (start == 0 or text[start - 1] == "\n") and text[end : end + 1] == "\n"
    if not new and whole_lines and not old.endswith("\n"):
        end += 1  # lines taken out leave no empty line behind
    line_break = _break_at(text, breaks, start)
    put = new.replace("\n", line_break).encode()
    raw_start, raw_end = start + bisect_left(breaks, start), end + bisect_left(breaks, end)
    before = raw[:raw_start].encode(errors="surrogateescape")
    removed = raw[raw_start:raw_end].encode(errors="surrogateescape")
    result = before + put + content[len(before) + len(removed) :]
    first = text.count("\n", 0, start) + 1
    said = (
        f"Edited {edit.path}: {_lines(first, new)}."
        if new
        else f"Edited {edit.path}: removed {_lines(first, old)}."
    )
    undoing = Undoing(edit.path, len(before), removed, len(put), digest(result))
    return Applied(result, said, undoing)


def take_back(content: bytes, undoing: Undoing) -> bytes | None:
    """Return the bytes before the edit, or None where the file was changed since."""
    if digest(content) != undoing.after:
        return None
    return content[: undoing.offset] + undoing.removed + content[undoing.offset + undoing.added :]


def _with_plain_breaks(raw: str) -> tuple[str, list[int]]:
    """Return the text with LF alone, and where in it a CRLF was."""
    pieces = raw.split("\r\n")
    breaks, at = [], -1
    for piece in pieces[:-1]:
        at += len(piece) + 1
        breaks.append(at)
    return "\n".join(pieces), breaks


def _break_at(text: str, breaks: list[int], start: int) -> str:
    """Return the line break in use at a place: the next one's, at the last line the one before."""
    at = text.find("\n", start)
    if at < 0:
        at = text.rfind("\n", 0, start)
    position = bisect_left(breaks, at)
    return "\r\n" if position < len(breaks) and breaks[position] == at else "\n"


def _places(text: str, old: str) -> list[int]:
    """Return where `old` is, overlapping places too."""
    places, at = [], text.find(old)
    while at >= 0:
        places.append(at)
        at = text.find(old, at + 1)
    return places


def _lines(first: int, text: str) -> str:
    last = first + text.count("\n") - (1 if text.endswith("\n") and len(text) > 1 else 0)
    return f"lines {first}-{last}"


def _many_matches(path: str, text: str, places: list[int]) -> str:
    lines = [str(text.count("\n", 0, place) + 1) for place in places[:_MOST_PLACES]]
    more = ", ..." if len(places) > _MOST_PLACES else ""
    return (
        f"the old text has {len(places)} matches in {path} (at lines {', '.join(lines)}{more}) and must have one: "
        "add lines before or after it until it is unique"
    )


def _no_match(path: str, text: str, old: str) -> str:
    problem = f"the old text has 0 matches in {path}"
    file_lines = text.split("\n")
    present = set(file_lines)
    missing = next((line for line in old.split("\n") if line.strip() and line not in present), None)
    if missing is None:
        return f"{problem}: each line of it is there, but not one after another like that; view the file"
    wanted = f"its line {_quoted(missing)}"
    words = missing.split()
    for number, line in enumerate(file_lines, 1):
        if line.split() == words:
            return (
                f"{problem}: {wanted} has other blanks than line {number}, {_quoted(line)}; copy it exactly"
            )
    short = [line[:_MOST_QUOTED_CHARS] for line in file_lines[:_MOST_COMPARED_LINES]]
    near = difflib.get_close_matches(missing[:_MOST_QUOTED_CHARS], short, n=1, cutoff=0.5)
    if not near:
        return f"{problem}, and no line is like {wanted}; view the file"
    closest = f"line {short.index(near[0]) + 1}, {_quoted(near[0])}"
    return f"{problem}: {wanted} is not there, the closest is {closest}; copy it exactly"


def _quoted(line: str) -> str:
    shown = line.encode(errors="surrogateescape").decode(errors="replace")
    return repr(shown[:_MOST_QUOTED_CHARS]) + ("..." if len(shown) > _MOST_QUOTED_CHARS else "")
