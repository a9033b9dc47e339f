"""What the tokens of a chat are, as arrays: messages, lines, words, paths, and the views of files an edit may point into.

A pure function of the ids, so sampling and training see the same. Used by the coder's template, grammar and network. The
network reads *units*: a word that was shown is one, however many pieces spell it; elsewhere a token is one.
Shapes: T tokens of one row, W units.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent_runtime.types import IntArray
from trainer.models.coder.words import ASSISTANT, CONTINUED, EDIT, END, SYSTEM, USER, VIEW, CoderWords

__all__ = [
    "FLAGS",
    "FOREVER",
    "LINE_TOLD",
    "SCOPE_TOLD",
    "SLOTS",
    "Clue",
    "FileKind",
    "Page",
    "View",
    "grow",
    "read_page",
]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
FOREVER = 1 << 40
SLOTS = 64
"""Names are told apart by the order in which they occur, shuffled per chat; beyond so many, numbers are used again."""
FLAGS = 4
"""Bits of `Page.flags_T`: its word is in the first message; so is the name of the function around it; that name is in
another message that is no file; a traceback names its line."""
SCOPE_TOLD, LINE_TOLD = 4, 8
_CACHED_PAGES = 1024
_KNOWN = frozenset(
    name
    for owner in (builtins, str, list, dict, set, int, float, tuple)
    for name in dir(owner)
    if not name.startswith("_")
) | {
    "self",
    "cls",
    "pytest",
    "raises",
    "expected",
    "returns",
    "raised",
    "tests",
    "line",
    "lines",
    "exit",
    "code",
}


class FileKind(IntEnum):
    """What a word is if it is a path."""

    NONE = 0
    MODULE = 1
    TEST = 2
    OTHER = 3


class Clue(IntEnum):
    """Why a path in a traceback tells of a module."""

    ITS_TEST = 0
    ITSELF = 1


@dataclass(frozen=True, slots=True)
class View:
    """One file as a message showed it."""

    path: str
    opened: int
    """Position of the message's opening token."""
    first: int
    beyond: int
    """Positions of the file's content."""


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """One row of tokens and what they are."""

    ids: IntArray
    opener_T: Ints
    """Position of the special token that opened the message a token belongs to."""
    message_T: Ints
    """Number of the message."""
    user_T: Bools
    """In a message shown to the model."""
    line_T: Ints
    column_T: Ints
    """Line in the message, and unit in the line."""
    begin_T: Ints
    """Position of the newline, or of the message's opening, that begins the line."""
    indent_T: Ints
    """Spaces before the line's first word."""
    unit_T: Ints
    """Number of the unit a token belongs to."""
    start_T: Bools
    """The first token of a word that was shown."""
    path_T: Ints
    """Where a path begins: the position where the same path first began; elsewhere -1."""
    name_T: Ints
    """Where a name begins: the position where the same name first began in this message; elsewhere -1."""
    word_T: Ints
    """1 + slot of a name, or of the name in a path; else 0: a module, its tests and what imports it have one slot."""
    file_T: Ints
    """Where a path begins: its `FileKind`; elsewhere 0."""
    flags_T: Ints
    view_from_T: Ints
    """In the content of a viewed file: the position of its message; elsewhere -1."""
    view_until_T: Ints
    """From there on a newer view of the same file counts."""
    at_W: Ints
    """Position of each unit's first token."""
    views: tuple[View, ...]
    spots: tuple[tuple[int, int], ...]
    """(position of the answer, position pointed to) of each edit in the row."""
    traced: tuple[tuple[int, int, Clue], ...] = ()
    """(position, `path_T` of a module, why it is a clue) of each path that a traceback names."""
    listed: tuple[tuple[int, int], ...] = ()
    """(position, `path_T`) of each path that has a line of its own in a message that is no file, as in a listing."""

    def view_at(self, position: int) -> View:
        """Return the view that shows the token at `position`."""
        return next(view for view in self.views if view.first <= position < view.beyond)

    def word_end(self, position: int, words: CoderWords) -> int:
        """Return the position beyond the word that begins at `position`."""
        end = position + 1
        while end < len(self.ids) and self.ids[end] < words.size and words.kind_V[self.ids[end]] == CONTINUED:
            end += 1
        return end


def read_page(ids: IntArray, words: CoderWords) -> Page:
    """Return what the tokens are. Pages of the same ids are read once."""
    return _read(np.ascontiguousarray(ids, np.int32).tobytes(), words)


def grow(page: Page, token: int) -> Page:
    """Return the page with one more token of the answer it ends with."""
    length = len(page.ids)
    last = {
        "ids": token,
        "unit_T": page.unit_T[-1] + 1,
        "column_T": page.column_T[-1] + 1,
        "start_T": False,
        "path_T": -1,
        "name_T": -1,
        "word_T": 0,
        "file_T": 0,
        "flags_T": 0,
        "view_from_T": -1,
        "view_until_T": FOREVER,
        "at_W": length,
    }
    changes: dict[str, Any] = {}
    for each in fields(page):
        value = getattr(page, each.name)
        if isinstance(value, np.ndarray):
            new = last.get(each.name, value[-1])
            changes[each.name] = np.append(value, np.array([new], value.dtype))
    return replace(page, **changes)


@lru_cache(maxsize=_CACHED_PAGES)
def _read(data: bytes, words: CoderWords) -> Page:
    ids = np.frombuffer(data, np.int32)
    known = np.where(ids < words.size, ids, END)
    index = np.arange(len(ids))
    opens = (known == SYSTEM) | (known == USER) | (known == ASSISTANT)
    opener_T = np.maximum.accumulate(np.where(opens, index, 0))
    user_T = known[opener_T] == USER
    newline_T = user_T & (words.indent_V[known] >= 0)  # an answer is one line
    # A newline begins its line: what stands on a line is counted from it.
    lines = np.cumsum(newline_T)
    begins = np.maximum.accumulate(np.where(opens | newline_T, index, 0))
    start_T = user_T & words.is_start(known)
    whole_T = ~(user_T & (words.kind_V[known] == CONTINUED))
    unit_T = np.cumsum(whole_T) - 1
    line_T = lines - lines[opener_T]
    views = _views(ids, known, words, opener_T, line_T)
    view_from_T, view_until_T = np.full(len(ids), -1), np.full(len(ids), FOREVER)
    newest: dict[str, View] = {}
    for view in views:
        view_from_T[view.first : view.beyond] = view.opened
        if (older := newest.get(view.path)) is not None:
            view_until_T[older.first : older.beyond] = view.opened
        newest[view.path] = view
    edits = np.flatnonzero((known[1:] == EDIT) & (known[:-1] == ASSISTANT)) + 1
    spots = tuple(
        (int(at), int(ids[at + 1]) - words.size)
        for at in edits
        if at + 1 < len(ids) and ids[at + 1] >= words.size
    )
    page = Page(
        ids=ids,
        opener_T=opener_T,
        message_T=np.cumsum(opens) - 1,
        user_T=user_T,
        line_T=line_T,
        column_T=unit_T - unit_T[begins],
        begin_T=begins,
        indent_T=np.maximum(words.indent_V[known[begins]], 0),
        unit_T=unit_T,
        start_T=start_T,
        path_T=np.full(len(ids), -1),
        name_T=np.full(len(ids), -1),
        word_T=np.zeros(len(ids), np.int64),
        file_T=np.zeros(len(ids), np.int64),
        flags_T=np.zeros(len(ids), np.int64),
        view_from_T=view_from_T,
        view_until_T=view_until_T,
        at_W=np.flatnonzero(whole_T),
        views=views,
        spots=spots,
    )
    return _named(page, known, words)


def _named(page: Page, known: Ints, words: CoderWords) -> Page:
    """Fill in what paths and names are, and which of them other messages mention; return the page with the rest."""
    starts = np.flatnonzero(page.start_T)
    if not len(starts):
        return page
    text = [
        words.decode(page.ids[start:end]).lstrip(" ")
        for start, end in zip(starts.tolist(), _ends(page, known, words, starts), strict=True)
    ]
    openers = page.opener_T[starts].tolist()
    in_view = (page.view_from_T[starts] >= 0).tolist()
    first = "".join(word for word, opener in zip(text, openers, strict=True) if opener == openers[0])
    shuffle = np.random.default_rng(_number(first)).permutation(SLOTS)
    paths: dict[str, int] = {}
    names: dict[tuple[int, str], int] = {}
    slots: dict[str, int] = {}
    told: dict[
        str, tuple[int, bool]
    ] = {}  # name -> first message that has it and is no file, whether the very first
    for start, word, opener, shown in zip(starts.tolist(), text, openers, in_view, strict=True):
        if ("/" in word or "." in word) and word[-1].isalnum():
            page.path_T[start] = paths.setdefault(word, start)
            stem, page.file_T[start] = _file(word)
            page.word_T[start] = 1 + int(shuffle[slots.setdefault(stem, len(slots)) % SLOTS])
        elif word.isidentifier() and words.name_V[known[start]]:
            page.name_T[start] = names.setdefault((opener, word), start)
            if word not in _KNOWN:
                slot = slots.setdefault(word, len(slots))
                page.word_T[start] = 1 + int(shuffle[slot % SLOTS])
                if not shown:
                    told.setdefault(word, (opener, opener == openers[0]))
    _flag(page, starts, text, told)
    return replace(
        page, traced=tuple(_traced(page, starts, text, paths)), listed=tuple(_listed(page, starts))
    )


def _listed(page: Page, starts: Ints) -> Iterator[tuple[int, int]]:
    line_of = page.begin_T[starts]
    ends = np.append(line_of[1:] != line_of[:-1], True)
    alone = ends & np.append(True, ends[:-1]) & (page.path_T[starts] >= 0) & (page.view_from_T[starts] < 0)
    for at in starts[alone].tolist():
        yield at, int(page.path_T[at])


def _traced(
    page: Page, starts: Ints, text: list[str], paths: dict[str, int]
) -> Iterator[tuple[int, int, Clue]]:
    modules: dict[str, list[int]] = {}
    for path, first in paths.items():
        if page.file_T[first] == FileKind.MODULE:
            modules.setdefault(_file(path)[0], []).append(first)
    for n in _entries(page, starts, text):
        at, kind = int(starts[n]), page.file_T[starts[n]]
        if kind == FileKind.MODULE:
            yield at, paths[text[n]], Clue.ITSELF
        elif kind == FileKind.TEST:
            for module in modules.get(_file(text[n])[0], ()):
                yield at, module, Clue.ITS_TEST


def _entries(page: Page, starts: Ints, text: list[str]) -> Iterator[int]:
    """Yield which words are the paths of a traceback's entries, `PATH:LINE: in NAME`."""
    for n in np.flatnonzero(page.path_T[starts] >= 0).tolist():
        if n + 2 < len(text) and text[n + 1] == ":" and text[n + 2].isdigit():
            yield n


def _file(path: str) -> tuple[str, FileKind]:
    """Return the name that a path, its tests and its imports share, and what kind of file it is."""
    folder, _, file = path.rpartition("/")
    stem, _, ending = file.partition(".")
    if ending != "py":
        return stem, FileKind.OTHER
    if stem == "__init__":
        return folder.rpartition("/")[2], FileKind.OTHER
    if stem.startswith("test_"):
        return stem.removeprefix("test_"), FileKind.TEST
    return stem, FileKind.MODULE


def _ends(page: Page, known: Ints, words: CoderWords, starts: Ints) -> list[int]:
    ends = np.append(np.flatnonzero(words.kind_V[known] != CONTINUED), len(known))
    return [int(end) for end in ends[np.searchsorted(ends, starts, side="right")]]


def _flag(page: Page, starts: Ints, text: list[str], told: dict[str, tuple[int, bool]]) -> None:
    """Fill in the flags of viewed files, by the messages before them."""

    def known(word: str, view: View) -> tuple[bool, bool]:
        opener, first = told.get(word, (FOREVER, False))
        return opener < view.opened, first

    for view in page.views:
        low, high = np.searchsorted(starts, [view.first, view.beyond])
        hits = _hits(page, starts, text, view)
        first_line = int(page.line_T[view.first])
        scopes: list[tuple[int, str]] = []
        previous = -1
        for n in range(int(low), int(high)):
            start = int(starts[n])
            line, indent = int(page.line_T[start]), int(page.indent_T[start])
            if line != previous:
                previous = line
                while scopes and scopes[-1][0] >= indent:
                    scopes.pop()
                if text[n] == "def" and n + 1 < len(text):
                    scopes.append((indent, text[n + 1]))
            scope = scopes[-1][1] if scopes else ""
            page.flags_T[start] = (
                1 * known(text[n], view)[1]
                + 2 * known(scope, view)[1]
                + SCOPE_TOLD * known(scope, view)[0]
                + LINE_TOLD * ((line - first_line + 1) in hits)
            )


def _hits(page: Page, starts: Ints, text: list[str], view: View) -> set[int]:
    """Return the lines of the viewed file that tracebacks before it name."""
    return {
        int(text[n + 2])
        for n in _entries(page, starts, text)
        if starts[n] < view.opened and text[n] == view.path
    }


def _number(text: str) -> int:
    """Return a number that a text always has."""
    value = 0
    for byte in text.encode():
        value = (value * 131 + byte) & 0xFFFFFFFF
    return value


def _views(ids: IntArray, known: Ints, words: CoderWords, opener_T: Ints, line_T: Ints) -> tuple[View, ...]:
    """Find the messages that answer a view with a file: `PATH (lines A-B of N)`, then its lines."""
    views: list[View] = []
    asked = np.flatnonzero((known[1:] == VIEW) & (known[:-1] == ASSISTANT)) + 1
    openers = np.flatnonzero(known == USER)
    for at in asked.tolist():
        later = np.searchsorted(openers, at)
        if later == len(openers):
            continue
        opened = int(openers[later])
        beyond = int(np.searchsorted(opener_T, opened, side="right"))
        inside = line_T[opened:beyond]
        first = opened + int(np.searchsorted(inside, 1))
        head = words.decode(ids[opened + 1 : first])
        path, mark, rest = head.partition(" (lines ")
        if mark and rest.endswith(")") and first < beyond:
            views.append(View(path, opened, first, beyond))
    return tuple(views)
