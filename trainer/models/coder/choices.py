"""What may come next in the coder's answers, as masks: over spelled tokens and over places in the prompt.

Used by sampling (one choice per row) and training (all choices of all rows). A pure function of the tokens before.
Shapes: N choices, S places, V spelled tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.models.coder.grammar import Choice, Step, changes_nothing, steps
from trainer.models.coder.offers import known_paths, offer_at
from trainer.models.coder.page import LINE_TOLD, SCOPE_TOLD, Clue, Page
from trainer.models.coder.words import (
    EDIT,
    END,
    INSERT,
    INSERT_SPACED,
    RANGE,
    REPLACE,
    SPACED,
    SPECIALS,
    SUBMIT,
    TEST,
    TEXT,
    UNDO,
    VIEW,
    CoderWords,
)

__all__ = ["Choices", "choices", "step_after"]

_POINTER = {Choice.PATH: 0, Choice.SPOT: 1, Choice.LAST: 2, Choice.BEGIN: 3, Choice.CONTENT: 4}
_WORD_DONE, _LINE_DONE, _TRACED = range(3)
_SCOPE_TOLD, _LINE_TOLD, _OF_FILE = (_TRACED + len(Clue) + n for n in range(3))
_FAR_LINES = 8
"""Lines a replaced range may span."""


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """Some choices, as tensors."""

    POINTERS: ClassVar[int] = len(_POINTER)
    CLUES: ClassVar[int] = _OF_FILE + len(Clue)
    spelled_NV: torch.Tensor
    places_NS: torch.Tensor
    group_NS: torch.Tensor
    """The place that stands for each place: the first of equal names or paths."""
    clues_CNS: torch.Tensor
    """What else tells of a place (C = `CLUES`): how often earlier edits pointed to this word, and to this line; whether a
    traceback names the test of this path's module, and the path itself; of a word to edit, whether another message names
    the function around it, a traceback its line, the test of its file, and its file."""
    pointer_N: torch.Tensor
    """Which of the `POINTERS` ways of pointing it is (0 where none)."""


def step_after(page: Page, at: int, size: int) -> tuple[int, Step]:
    """Return where the answer that the token at `at` belongs to was opened, and the step of the token after `at`."""
    opened = int(page.opener_T[at])
    *_, last = steps(page.ids[opened + 1 : at + 1], size)
    return opened, last


def _ends_of_range(page: Page, spot: int) -> NDArray[np.bool_]:
    """Return at which tokens a range that begins at `spot` may end: words of the same file, a few lines on."""
    near: NDArray[np.bool_] = page.line_T - page.line_T[spot] <= _FAR_LINES
    near &= page.start_T & (page.view_from_T == page.view_from_T[spot])
    near[: spot + 1] = False
    return near


def _to_view(page: Page, opened: int, words: CoderWords) -> NDArray[np.bool_]:
    """Return at which tokens a path begins that the answer opened at `opened` may view."""
    known: NDArray[np.bool_] = np.isin(page.path_T, list(known_paths(page, opened)))
    known &= np.arange(len(page.ids)) < opened
    return known & ~np.isin(page.path_T, list(offer_at(page, opened, words).seen))


def _traced(page: Page, opened: int) -> dict[Clue, list[int]]:
    """Return the modules that tracebacks before the answer opened at `opened` name, as `Page.path_T`, by why.

    A module whose path stands only behind the answer is not told of by its test before it: sampling could not know.
    """
    return {
        clue: [path for at, path, why in page.traced if why == clue and at < opened and path < opened]
        for clue in Clue
    }


def _tell_of_words(
    clues_CW: NDArray[np.float32], page: Page, opened: int, current: NDArray[np.bool_]
) -> None:
    """Write what tells of each word (W, by `Page.at_W`) that the answer opened at `opened` may edit."""
    here = page.at_W
    for asked_at, spot in page.spots:
        if asked_at < opened:
            clues_CW[_WORD_DONE, page.unit_T[spot]] += 1
            same = (page.opener_T == page.opener_T[spot]) & (page.line_T == page.line_T[spot])
            clues_CW[_LINE_DONE] += same[here]
    clues_CW[_SCOPE_TOLD] = (current & (page.flags_T & SCOPE_TOLD > 0))[here]
    clues_CW[_LINE_TOLD] = (current & (page.flags_T & LINE_TOLD > 0))[here]
    file_T = page.path_T[page.view_from_T + 1]  # a view begins with its path
    for clue, modules in _traced(page, opened).items():
        clues_CW[_OF_FILE + clue] = (current & np.isin(file_T, modules))[here]


@cache
def _spelled(words: CoderWords) -> NDArray[np.bool_]:
    table = np.zeros((len(Choice), words.size), np.bool_)
    table[Choice.TOOL, [TEXT, VIEW, EDIT, UNDO, TEST, SUBMIT]] = True
    table[Choice.ACT, [REPLACE, RANGE, INSERT, INSERT_SPACED]] = True
    for choice in (Choice.BEGIN, Choice.CONTENT, Choice.FREE):
        table[choice, SPECIALS:] = True
        table[choice, END] = True
    table[Choice.BEGIN, words.kind_V == SPACED] = False
    table[Choice.END, END] = True
    return table


def choices(asked: Sequence[tuple[Page, int]], words: CoderWords, slots: int) -> Choices:
    """Return the choices after the token at each (page, position); places are units."""
    count = len(asked)
    places_NS = np.zeros((count, slots), np.bool_)
    group_NS = np.tile(np.arange(slots), (count, 1))
    clues_CNS = np.zeros((Choices.CLUES, count, slots), np.float32)
    pointer_N = np.zeros(count, np.int64)
    kind_N = np.zeros(count, np.int64)
    closed: list[tuple[int, int]] = []
    for n, (page, at) in enumerate(asked):
        opened, step = step_after(page, at, words.size)
        kind_N[n] = step.choice
        pointer_N[n] = _POINTER.get(step.choice, 0)
        here = page.at_W
        units = slice(0, len(here))
        current = page.start_T & (page.view_from_T >= 0)
        current &= (page.view_from_T < opened) & (page.view_until_T > opened)
        if step.choice == Choice.TOOL:
            if not current.any():
                closed.append((n, EDIT))
            if not _to_view(page, opened, words).any():
                closed.append((n, VIEW))
            closed += [(n, tool) for tool in offer_at(page, opened, words).closed]
        elif step.choice == Choice.PATH:
            known = _to_view(page, opened, words)
            places_NS[n, units] = known[here]
            group_NS[n, units] = np.where(known, page.unit_T[page.path_T], page.unit_T)[here]
            for clue, modules in _traced(page, opened).items():
                clues_CNS[_TRACED + clue, n, units] = np.isin(page.path_T, modules)[here]
        elif step.choice == Choice.SPOT:
            places_NS[n, units] = current[here]
            _tell_of_words(clues_CNS[:, n, units], page, opened, current)
        elif step.choice == Choice.ACT:
            if not _ends_of_range(page, step.spot).any():
                closed.append((n, RANGE))
        elif step.choice == Choice.LAST:
            places_NS[n, units] = _ends_of_range(page, step.spot)[here]
        elif step.choice in (Choice.BEGIN, Choice.CONTENT):
            answer = page.ids[opened + 1 : at + 1]
            if answer.tobytes() in offer_at(page, opened, words).tried or changes_nothing(
                answer, page, words
            ):
                closed.append((n, END))
            named = (page.opener_T == page.opener_T[step.spot]) & (page.name_T >= 0)
            places_NS[n, units] = named[here]
            group_NS[n, units] = np.where(named, page.unit_T[page.name_T], page.unit_T)[here]
    spelled_NV = _spelled(words)[kind_N]
    for n, token in closed:
        spelled_NV[n, token] = False
    return Choices(
        spelled_NV=torch.from_numpy(spelled_NV),
        places_NS=torch.from_numpy(places_NS),
        group_NS=torch.from_numpy(group_NS),
        clues_CNS=torch.from_numpy(clues_CNS),
        pointer_N=torch.from_numpy(pointer_N),
    )
