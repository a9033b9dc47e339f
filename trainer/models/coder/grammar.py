"""The coder's answers: tool calls as a few tokens and pointers, which tokens may come next, and the text they stand for.

An edit points at a word of a viewed file, says what happens there, and gives the new words, spelled or pointed to. Its text
is an exact-match edit of whole lines. `encode` is the inverse, for an expert's text; what cannot be said this way is text
as it is. A pointer to a word that occurs several times is the one to its first occurrence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from agent_runtime.types import IntArray
from trainer.models.coder.offers import Offer, known_paths, offer_at
from trainer.models.coder.page import Page, View
from trainer.models.coder.words import (
    EDIT,
    END,
    INSERT,
    INSERT_SPACED,
    RANGE,
    REPLACE,
    SPACED,
    SUBMIT,
    TEST,
    TEXT,
    UNDO,
    VIEW,
    CoderWords,
)

__all__ = ["Choice", "Step", "changes_nothing", "decode", "encode", "steps"]

_SIMPLE = {"undo": UNDO, "run_tests": TEST, "submit": SUBMIT}
_SPOKEN = {token: text for text, token in _SIMPLE.items()}
_OPEN, _MIDDLE, _CLOSE = "<<<<<<<", "=======", ">>>>>>>"


class Choice(IntEnum):
    """What kind of token comes next."""

    TOOL = 0
    PATH = 1
    SPOT = 2
    ACT = 3
    LAST = 4
    BEGIN = 5
    """The first new word, whose space is that of what it replaces; else as `CONTENT`."""
    CONTENT = 6
    """Words, or pointers to names of the edited file; or the end."""
    FREE = 7
    """Words, or the end."""
    END = 8


@dataclass(frozen=True, slots=True)
class Step:
    """The next token's kind; `spot` is the word the present edit points to, else -1."""

    choice: Choice
    spot: int = -1


def steps(answer: IntArray, size: int) -> Iterator[Step]:
    """Yield the step of each token of an answer, and that of the token after the last."""
    choice, spot = Choice.TOOL, -1
    for token in answer.tolist():
        yield Step(choice, spot)
        match choice:
            case Choice.TOOL:
                choice = {VIEW: Choice.PATH, EDIT: Choice.SPOT, TEXT: Choice.FREE}.get(token, Choice.END)
            case Choice.PATH:
                choice = Choice.END
            case Choice.SPOT:
                choice, spot = Choice.ACT, token - size
            case Choice.ACT:
                choice = Choice.LAST if token == RANGE else Choice.BEGIN
            case Choice.LAST:
                choice = Choice.BEGIN
            case Choice.BEGIN:
                choice = Choice.END if token == END else Choice.CONTENT
            case _:
                choice = Choice.END if token == END else choice
    yield Step(choice, spot)


# -- what an answer says -------------------------------------------------------------------------------------


def decode(answer: IntArray, page: Page, words: CoderWords) -> str:
    """Return the action that `answer` (without its end token, or cut off) stands for, given what was shown."""
    ids = answer[answer != END]
    if not len(ids):
        return ""
    tool, rest = int(ids[0]), ids[1:]
    if tool in _SPOKEN:
        return _SPOKEN[tool]
    if tool == VIEW and len(rest) == 1:
        return f"view {_word(int(rest[0]) - words.size, page, words)}"
    if tool == EDIT and len(rest) > 1:
        return _edit(rest, page, words)
    return words.decode(rest[rest < words.size])


def changes_nothing(answer: IntArray, page: Page, words: CoderWords) -> bool:
    """Return whether the edit that `answer` (without its end token) makes puts the same words in place of a word."""
    spot, act, content = int(answer[1]) - words.size, int(answer[2]), answer[3:]
    if act != REPLACE or not len(content):
        return False
    return _spell(content, page, words).strip(" ") == _word(spot, page, words).strip(" ")


def _word(position: int, page: Page, words: CoderWords) -> str:
    return words.decode(page.ids[position : page.word_end(position, words)]).lstrip(" ")


def _edit(ids: IntArray, page: Page, words: CoderWords) -> str:
    spot, act = int(ids[0]) - words.size, int(ids[1])
    last, content = spot, ids[2:]
    if act == RANGE:
        if len(content) == 0:
            return "edit"
        last, content = int(content[0]) - words.size, content[1:]
    view = page.view_at(spot)
    shown = page.ids[view.first : view.beyond]
    lines = _lines(shown, words)
    first_line = int(page.line_T[spot] - page.line_T[view.first])
    last_line = int(page.line_T[last] - page.line_T[view.first])
    begin = _line_begin(spot, page, view)
    end = page.word_end(last, words)
    before = words.decode(page.ids[begin:spot]).removeprefix("\n")
    line_end = _line_end(end, page, view)
    spaced = words.kind_V[page.ids[spot]] == SPACED
    new = _spell(content, page, words)
    if act in (INSERT, INSERT_SPACED):
        after = words.decode(page.ids[spot:line_end]).lstrip(" ")
        middle = f"{' ' if spaced else ''}{new.removeprefix(' ')}{' ' if act == INSERT_SPACED else ''}"
    else:
        after = words.decode(page.ids[end:line_end])
        middle = f"{' ' if spaced and new else ''}{new.removeprefix(' ')}"
    replaced = f"{before}{middle}{after}"
    return _render(view, lines, first_line, last_line, replaced)


def _render(view: View, lines: list[str], first: int, last: int, new: str) -> str:
    """Return the exact-match edit of whole lines, with as many around them as make the old text unique."""
    top, bottom = first, last
    text = "\n".join(lines)
    while top > 0 or bottom < len(lines) - 1:
        old = "\n".join(lines[top : bottom + 1])
        if old.strip() and text.count(old) == 1:
            break
        if bottom < len(lines) - 1 and (bottom - last <= first - top or top == 0):
            bottom += 1
        else:
            top -= 1
    old = "\n".join(lines[top : bottom + 1])
    whole = "\n".join([*lines[top:first], new, *lines[last + 1 : bottom + 1]])
    return f"edit {view.path}\n{_OPEN}\n{old}\n{_MIDDLE}\n{whole}\n{_CLOSE}"


def _lines(shown: IntArray, words: CoderWords) -> list[str]:
    return words.decode(shown).removeprefix("\n").split("\n")


def _line_begin(position: int, page: Page, view: View) -> int:
    """Return the position of the newline that begins the line of `position`."""
    return max(view.first, int(page.begin_T[position]))


def _line_end(position: int, page: Page, view: View) -> int:
    """Return the position beyond the last token of the line that `position - 1` stands on."""
    line = page.line_T[position - 1]
    return position + int(np.searchsorted(page.line_T[position : view.beyond], line + 1))


def _spell(content: IntArray, page: Page, words: CoderWords) -> str:
    """Return the text of spelled words and pointers; a pointer brings its word with a space after a word or a comma."""
    text = ""
    for token in content.tolist():
        if token < words.size:
            text += words.decode(np.array([token], np.int32))
        else:
            text += _glue(text) + _word(token - words.size, page, words)
    return text


def _glue(text: str) -> str:
    """Return the space that a pointed-to name gets after `text`, by the habits of Python code."""
    if not text or text.endswith(("(", "[", "{", ".", " ", "\n", "-", "~", "@", "**")):
        return ""
    return " " if text[-1].isalnum() or text[-1] in "_,+*/%=<>:&|\"')]}" else ""


# -- how a text is said ----------------------------------------------------------------------------------------


def encode(text: str, page: Page, words: CoderWords) -> IntArray:
    """Return the answer (end token included) whose text is `text`, in pointers where that is possible and offered."""
    stripped = text.strip()
    found: IntArray | None = None
    offer = offer_at(page, len(page.ids) - 1, words)
    if _SIMPLE.get(stripped, TEXT) not in (TEXT, *offer.closed):
        found = np.array([_SIMPLE[stripped]], np.int32)
    elif stripped.startswith("view "):
        found = _encode_view(stripped, page, words, offer)
    elif stripped.startswith("edit "):
        found = _encode_edit(text, page, words)
        if found is not None and (found.tobytes() in offer.tried or changes_nothing(found, page, words)):
            found = None
    if found is None:
        found = np.concatenate((np.array([TEXT], np.int32), words.encode(text)))
    return np.append(found, np.int32(END))


def _encode_view(text: str, page: Page, words: CoderWords, offer: Offer) -> IntArray | None:
    for position in sorted(known_paths(page, len(page.ids))):
        if position not in offer.seen and _word(position, page, words) == text.removeprefix("view "):
            return np.array([VIEW, words.size + position], np.int32)
    return None


def _encode_edit(text: str, page: Page, words: CoderWords) -> IntArray | None:
    head, _, body = text.strip("\n").partition(f"\n{_OPEN}\n")
    old, _, new = body.removesuffix(f"\n{_CLOSE}").partition(f"\n{_MIDDLE}\n")
    path = head.removeprefix("edit ").strip()
    view = next((view for view in reversed(page.views) if view.path == path), None)
    if view is None or not old:
        return None
    for candidate in _candidates(old, new, page, view, words):
        if _same(decode(candidate, page, words), old, new, page, view, words):
            return candidate
    return None


def _same(said: str, old: str, new: str, page: Page, view: View, words: CoderWords) -> bool:
    """Return whether a said edit changes the shown file as `old` to `new` does."""
    shown = "\n".join(_lines(page.ids[view.first : view.beyond], words))
    body = said.partition(f"\n{_OPEN}\n")[2].removesuffix(f"\n{_CLOSE}")
    said_old, _, said_new = body.partition(f"\n{_MIDDLE}\n")
    if not said_old or shown.count(said_old) != 1 or shown.count(old) != 1:
        return False
    return shown.replace(said_old, said_new) == shown.replace(old, new)


def _candidates(old: str, new: str, page: Page, view: View, words: CoderWords) -> Iterator[IntArray]:
    """Yield the ways to say an edit, shortest first; each must still be checked."""
    shown = page.ids[view.first : view.beyond]
    text = "\n".join(_lines(shown, words))
    at = text.find(old)
    if at < 0:
        return
    after = words.encode("\n" + text[:at] + new + text[at + len(old) :])
    starts = np.array([first for first, _ in words.words(shown)])
    limit = min(len(shown), len(after))
    differs = shown[:limit] != after[:limit]
    prefix = int(np.argmax(differs)) if differs.any() else limit
    differs = shown[::-1][:limit] != after[::-1][:limit]
    suffix = int(np.argmax(differs)) if differs.any() else limit
    suffix = min(suffix, limit - prefix)
    found: list[IntArray] = []
    for back in range(4):  # begin a few words earlier, where the change does not begin at one
        index = int(np.searchsorted(starts, prefix, side="right")) - 1 - back
        if index < 0:
            break
        begin = int(starts[index])
        if not page.start_T[view.first + begin]:
            continue
        for forth in range(4):
            cut = len(shown) - suffix
            stop = int(np.searchsorted(starts, cut)) + forth
            end = int(starts[stop]) if stop < len(starts) else len(shown)
            found += _at(begin, end, shown, after, page, view, words)
    yield from sorted(found, key=len)


def _at(
    begin: int, end: int, shown: IntArray, after: IntArray, page: Page, view: View, words: CoderWords
) -> list[IntArray]:
    """Return the edits that replace the words from `begin` up to `end` by what stands there afterwards."""
    spot = words.size + view.first + begin
    grown = len(after) - len(shown)
    middle = after[begin : max(begin, end + grown)]
    found = []
    inside = [first for first, _ in words.words(shown[begin:end])] if end > begin else []
    content = _content(middle, view.first + begin, page, view, words)
    if len(inside) == 1:
        found.append(np.concatenate((np.array([EDIT, spot, REPLACE], np.int32), content)))
        first = page.word_end(view.first + begin, words) - view.first - begin
        tail = middle[len(middle) - first :]
        if len(middle) > first and (words.piece_V[tail] == words.piece_V[shown[begin : begin + first]]).all():
            act = INSERT_SPACED if words.kind_V[tail[0]] == SPACED else INSERT
            put = _content(middle[: len(middle) - first], view.first + begin, page, view, words)
            found.append(np.concatenate((np.array([EDIT, spot, act], np.int32), put)))
    elif inside:
        last = begin + inside[-1]
        if page.start_T[view.first + last]:
            head = np.array([EDIT, spot, RANGE, words.size + view.first + last], np.int32)
            found.append(np.concatenate((head, content)))
    return found


def _content(ids: IntArray, spot: int, page: Page, view: View, words: CoderWords) -> IntArray:
    """Return new words as tokens: a name that the file has becomes a pointer, if its space is as usual."""
    names = {
        _word(position, page, words): position
        for position in np.flatnonzero(page.name_T == np.arange(len(page.name_T))).tolist()
        if view.opened < position < view.beyond
    }
    result: list[int] = []
    said = ""
    for first, beyond in words.words(ids):
        own = ids[first:beyond]
        text = words.decode(own)
        position = names.get(text.lstrip(" "))
        usual = not said or _glue(said) == text[: len(text) - len(text.lstrip(" "))]
        if position is not None and usual:
            result.append(words.size + position)
        else:
            result += own.tolist() if said else words.unspaced(own).tolist()
        said += text
    return np.array(result, np.int32)
