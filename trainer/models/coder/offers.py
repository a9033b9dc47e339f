"""Which tool calls would show or change nothing, given the chat: the coder is not offered them.

A view of what no listing names, or of what stands as it was last shown (a folder, and what cannot be viewed, too),
tests that ran on the very same files, an undo without an edit that stands, an edit that was made to the very same files
before. A pure function of the tokens before an answer; what an expert did all the same is said as text. A bash command
may change anything: after one, all that is listed is offered.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from trainer.models.coder.page import Page
from trainer.models.coder.words import ASSISTANT, EDIT, END, TEST, TEXT, UNDO, USER, VIEW, CoderWords

__all__ = ["Offer", "known_paths", "offer_at"]

_EDITED, _UNDONE = "Edited", "Undone"  # how the replies of `rock_env.tools.toolbox` begin
_CACHED = 256


@dataclass(frozen=True, slots=True)
class Offer:
    """What one answer is not offered."""

    closed: frozenset[int]
    """Tools."""
    seen: frozenset[int]
    """Paths, as `Page.path_T` tells them apart, of what stands as it was shown."""
    tried: frozenset[bytes]
    """Edits, as the tokens of their answers (without the end token)."""


_ALL_OFFERED = Offer(frozenset(), frozenset(), frozenset())


@dataclass(slots=True)
class _Project:
    """What the chat so far says of the project's files."""

    edits: tuple[tuple[int, bytes], ...] = ()
    """(path, answer) of each edit that stands."""
    tested: set[tuple[tuple[int, bytes], ...]] = field(default_factory=set)
    shown: dict[int, tuple[bytes, ...]] = field(default_factory=dict)
    """Path -> the edits of the file that stood when it was shown."""
    tried: dict[tuple[tuple[int, bytes], ...], set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """Edits that stood -> answers of the edits that were made then."""

    def of(self, path: int) -> tuple[bytes, ...]:
        return tuple(answer for edited, answer in self.edits if edited == path)

    def offer(self) -> Offer:
        closed = set[int]()
        if not self.edits:
            closed.add(UNDO)
        if self.edits in self.tested:
            closed.add(TEST)
        return Offer(
            frozenset(closed),
            frozenset(path for path, then in self.shown.items() if then == self.of(path)),
            frozenset(self.tried[self.edits]),
        )


def offer_at(page: Page, opened: int, words: CoderWords) -> Offer:
    """Return what the answer opened at position `opened` is not offered: nothing is kept from one that no chat opened."""
    return _offers(page, words).get(opened, _ALL_OFFERED)


def known_paths(page: Page, opened: int) -> set[int]:
    """Return the paths, as `Page.path_T` tells them apart, that the answer opened at `opened` is offered: those that a
    listing before it names. Reports and tracebacks are full of `a/b`, and of files outside the project."""
    return {path for at, path in page.listed if at < opened}


@lru_cache(maxsize=_CACHED)
def _offers(page: Page, words: CoderWords) -> dict[int, Offer]:
    """Return the offer of each answer of the row, by the position of its opening."""
    own = np.flatnonzero((page.ids == ASSISTANT) | (page.ids == USER)).tolist()
    views = {view.opened: view for view in page.views}
    path_of: dict[str, int] = {}
    project = _Project()
    found: dict[int, Offer] = {}
    for n, opened in enumerate(own):
        if page.ids[opened] != ASSISTANT:
            continue
        found[opened] = project.offer()
        replied = own[n + 1] if n + 1 < len(own) else len(page.ids)
        answer = page.ids[opened + 1 : replied]
        if replied == len(page.ids) or not len(answer):
            continue
        begins = words.decode(page.ids[replied + 1 : replied + 4]).lstrip()
        view = views.get(replied)
        match int(answer[0]):
            case tool if tool == VIEW and len(answer) > 1:
                path = int(page.path_T[int(answer[1]) - words.size])
                project.shown[path] = project.of(path)
                if view is not None:
                    path_of[view.path] = path
            case tool if tool == EDIT and len(answer) > 1:
                project.tried[project.edits].add(answer[answer != END].tobytes())
                if not begins.startswith(_EDITED):
                    continue
                path = path_of.get(page.view_at(int(answer[1]) - words.size).path, -1)
                project.edits = (*project.edits, (path, answer.tobytes()))
            case tool if tool == UNDO and begins.startswith(_UNDONE):
                project.edits = project.edits[:-1]
            case tool if tool == TEST:
                project.tested.add(project.edits)
            case tool if tool == TEXT:
                project = _Project(edits=project.edits)
    return found
