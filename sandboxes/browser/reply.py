"""What the driver answers, read as the words of a stranger: every byte may come from a hostile page.

A line is bounded in length and depth before it is parsed, and in counts, types and lengths after it. Whatever does not
fit raises `InfraError`; nothing else ever leaves here.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from rock_env.errors import InfraError
from sandboxes.browser.box.driver import MOST_MESSAGE

__all__ = ["MOST_LINE", "End", "LineReader", "Reply", "read_end", "read_reply"]

MOST_LINE = 1 << 20
_MOST_DEPTH = 6
_MOST_TREE = 200_000
_MOST_TABS = 16
_MOST_NOTES = 16
_MOST_STATE_DEPTH = 12
_FIELDS = frozenset({"id", "goal", "done", "reward", "error", "tree", "tabs", "active", "notes"})
_END_FIELDS = frozenset({"id", "state", "message", "done", "reward"})


@dataclass(frozen=True, slots=True)
class Reply:
    """What there is to see after an action."""

    tree: str
    """The accessibility tree of the active tab, an element a line; empty where there is none to show."""
    tabs: tuple[tuple[str, str], ...]
    """Title and address of each tab."""
    active: int
    """The number of the active tab."""
    error: str
    """Why the action did not work, or an empty string."""
    notes: tuple[str, ...]
    """What else happened, such as a dialog."""
    goal: str
    """The page's own instruction, of MiniWoB++ tasks alone."""
    done: bool
    reward: float
    """What the page of a MiniWoB++ task says of itself."""


@dataclass(frozen=True, slots=True)
class End:
    """What an episode came to."""

    state: dict[str, Any] | None
    """What the site's server had at the end, of no shape that is known yet; None where it is too large to be told."""
    message: str | None
    """What an agent in the box told the user; None where it told nothing."""
    done: bool
    reward: float


class LineReader:
    """Collects one line out of pieces, `MOST_LINE` bytes at most."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._length = 0

    def feed(self, data: bytes) -> bytes | None:
        """Take a piece and return the line once it is whole. Raise `InfraError` if it is too long or goes on behind it."""
        line, newline, rest = data.partition(b"\n")
        self._length += len(line)
        if self._length > MOST_LINE:
            raise InfraError(f"the browser's driver wrote a line of more than {MOST_LINE} bytes.")
        self._pieces.append(line)
        if not newline:
            return None
        if rest:
            raise InfraError("the browser's driver wrote more than it was asked.")
        return b"".join(self._pieces)


def read_reply(line: bytes, *, expected: int) -> Reply:
    """Return what one line says in answer to request `expected`. Raise `InfraError` for anything else, also for what the
    driver calls fatal.
    """
    fields = _read(line, expected, _FIELDS, _MOST_DEPTH)
    tabs = tuple(
        (_text("title", title, 200), _text("address", url, 500))
        for title, url in map(_pair, _items("tabs", fields["tabs"], _MOST_TABS))
    )
    active = fields["active"]
    if type(active) is not int or not 0 <= active < len(tabs):
        raise InfraError(f"the browser's driver names an active tab of {len(tabs)}: {str(active)[:20]!r}")
    done, reward = _outcome(fields)
    return Reply(
        tree=_text("tree", fields["tree"], _MOST_TREE),
        tabs=tabs,
        active=active,
        error=_text("error", fields["error"], 500),
        notes=tuple(_text("note", each, 300) for each in _items("notes", fields["notes"], _MOST_NOTES)),
        goal=_text("goal", fields["goal"], 2000),
        done=done,
        reward=reward,
    )


def read_end(line: bytes, *, expected: int) -> End:
    """Return what one line says of an episode's end. Raise as `read_reply`."""
    fields = _read(line, expected, _END_FIELDS, _MOST_STATE_DEPTH)
    state, message = fields["state"], fields["message"]
    if state is not None and not isinstance(state, dict):
        raise InfraError(f"the site's state is a {type(state).__name__}, expected an object.")
    told = None if message is None else _text("message", message, MOST_MESSAGE)
    done, reward = _outcome(fields)
    return End(state, told, done, reward)


def _outcome(fields: dict[str, Any]) -> tuple[bool, float]:
    done, reward = fields["done"], fields["reward"]
    if type(done) is not bool or type(reward) not in (int, float) or not math.isfinite(reward):
        raise InfraError("the browser's driver wrote no end and reward that can be read.")
    return done, float(max(-1.0, min(1.0, reward)))


def _read(line: bytes, expected: int, names: frozenset[str], most_depth: int) -> dict[str, Any]:
    """Return a reply's fields, which have these names."""
    try:
        text = line.decode("utf-8")
        _check_depth(text, most_depth)
        fields = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as error:
        raise InfraError(f"the browser's driver wrote no reply: {str(error)[:120]}") from error
    if not isinstance(fields, dict):
        raise InfraError(f"the browser's driver wrote {type(fields).__name__} instead of a reply.")
    if isinstance(fields.get("fatal"), str):
        raise InfraError(f"the browser failed: {fields['fatal'][:400]}")
    if fields.keys() != names:
        raise InfraError(
            f"the browser's driver wrote a reply with other fields: {sorted(fields)[:12]!r}"[:300]
        )
    if type(fields["id"]) is not int or fields["id"] != expected:
        raise InfraError(f"the browser's driver answered {str(fields['id'])[:20]!r} instead of {expected}.")
    return fields


def _check_depth(text: str, most: int) -> None:
    depth = 0
    inside = escaped = False
    for mark in text if text.count("[") + text.count("{") > most else "":
        if inside:
            if escaped:
                escaped = False
            elif mark == "\\":
                escaped = True
            elif mark == '"':
                inside = False
        elif mark == '"':
            inside = True
        elif mark in "[{":
            depth += 1
            if depth > most:
                raise ValueError(f"deeper than {most} levels")
        elif mark in "]}":
            depth -= 1


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no number")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a field is given twice")
    return fields


def _items(name: str, value: object, most: int) -> list[object]:
    if not isinstance(value, list) or len(value) > most:
        raise InfraError(f"the browser's driver wrote no list of at most {most} {name}.")
    return value


def _pair(value: object) -> tuple[object, object]:
    if not isinstance(value, list) or len(value) != 2:
        raise InfraError("the browser's driver wrote a tab that is no title and address.")
    return value[0], value[1]


def _text(name: str, value: object, most: int) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise InfraError(f"the browser's driver wrote no {name} of at most {most} characters.")
    return "".join(each if each == "\n" or each.isprintable() else "\ufffd" for each in value)
