"""Values that a test did not ask for: what it compares is asked about them, too, and may equal none. With code that asks.

They are drawn anew at each comparison, as many as chance has it, and among them are values of the same form as what the test
compares with, so that an object that answers does not know which question counts. Runs in any Python from 3.6 on.
"""

import ast
import os

if False:  # typing of newer Pythons
    from typing import Any

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_MOST_ITEMS = 20
_MOST_CHARS = 2000
_MOST_DEEP = 4
NOTHING = object()
"""In place of a value: there is no other of its form."""


def _drawn(most: int, urandom: "Any" = os.urandom, number: "Any" = int.from_bytes) -> int:
    """Return a number below `most` that nobody can foretell, by functions that nobody replaces."""
    return int(number(urandom(8), "big") % most)


def probes(others: "list[Any]") -> "list[Any]":
    """Return values in no order: strange ones, and for each plain value in `others` some that differ from it."""
    found = [twin(each) for other in others for each in (*_parts(other), other) for _ in range(1 + _drawn(3))]
    found = [each for each in found if each is not NOTHING]
    for _ in range(6 + _drawn(6)):
        found.insert(_drawn(len(found) + 1), _strange())
    return found


def _strange() -> "Any":
    """Return a value of a kind that chance has it."""
    number, word = _drawn(1 << (4 + _drawn(40))), _word(1 + _drawn(12))
    kinds = (
        object(),
        number,
        -number - 1,
        number / (7 + _drawn(1000)),
        word,
        word.encode(),
        (number,),
        [number, word],
        {word: number},
        frozenset((word,)),
    )
    return kinds[_drawn(len(kinds))]


def _word(size: int) -> str:
    return "".join([_LETTERS[_drawn(26)] for _ in range(size)])


def _parts(value: "Any", deep: int = 0) -> "list[Any]":
    """Return the plain values in a container."""
    kind = type(value)
    if kind not in (list, tuple, set, frozenset, dict) or deep >= _MOST_DEEP:
        return []
    found = []  # type: list[Any]
    for each in value.values() if kind is dict else value:
        found += [each, *_parts(each, deep + 1)]
        if len(found) >= _MOST_ITEMS:
            break
    return found[:_MOST_ITEMS]


def twin(value: "Any", deep: int = 0) -> "Any":
    """Return another value of the same kind and form, or `NOTHING` for what is no plain value."""
    kind = type(value)
    if kind is bool:
        return not value
    if kind is int:
        away = 3 + _drawn(9 + abs(value))
        return value - away if _drawn(2) else value + away
    if kind is float:
        return value + (1 + abs(value)) * (1 + _drawn(1000) / 100) if value - value == 0 else NOTHING
    if kind is str and 0 < len(value) <= _MOST_CHARS:
        return _other_text(value)
    if kind is bytes and 0 < len(value) <= _MOST_CHARS:
        return _other_text(value.decode("latin-1")).encode("latin-1", "replace")
    if kind in (list, tuple, set, frozenset, dict) and 0 < len(value) <= _MOST_ITEMS and deep < _MOST_DEEP:
        items = [twin(each, deep + 1) for each in (value.values() if kind is dict else value)]
        if not any(each is NOTHING for each in items):
            return kind(zip(value, items) if kind is dict else items)  # noqa: B905  # as old Pythons have it
    return NOTHING


def _other_text(text: str) -> str:
    """Return a text with other letters and digits in the same places."""
    found = []
    for each in text:
        if each.isdigit():
            found.append(str((int(each) + 1 + _drawn(9)) % 10) if each in "0123456789" else each)
        elif each.isalpha() and each.lower() in _LETTERS:
            other = _LETTERS[(_LETTERS.index(each.lower()) + 1 + _drawn(25)) % 26]
            found.append(other if each.islower() else other.upper())
        else:
            found.append(each)
    other = "".join(found)
    return other if other != text else text + _word(1 + _drawn(3))


# -- code whose comparisons are looked at


def compared(tree: "Any") -> "Any":
    """Return code in which each side of `==` and `!=` is looked at."""
    return _Compared().visit(tree)


class _Compared(ast.NodeTransformer):
    """Does it."""

    def visit_Compare(self, node: "Any") -> "Any":
        self.generic_visit(node)
        if any(isinstance(each, (ast.Eq, ast.NotEq)) for each in node.ops):
            sides = [node.left, *node.comparators]
            node.left, *node.comparators = [_looked_at(sides, at) for at in range(len(sides))]
        return node


_CONSTANT = ast.Constant if hasattr(ast, "Constant") else ast.Num


def _looked_at(sides: "list[Any]", at: int) -> "Any":
    """Return the code of a side that is looked at beside its neighbours: constants, and values that wait for it."""
    node = sides[at]
    if isinstance(node, (_CONSTANT, ast.Starred)):
        return node
    before, after = sides[max(at - 1, 0) : at], sides[at + 1 : at + 2]
    known = [each for each in (*before, *after) if isinstance(each, _CONSTANT)]
    names = ["rock_guard_looks"]
    if before and not isinstance(before[0], (_CONSTANT, ast.Starred)):
        names = ["rock_guard_ends"]
    if after and not isinstance(after[0], (_CONSTANT, ast.Starred)):
        names.append("rock_guard_begins")
    for name in names:
        call = ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=[node, *known], keywords=[])
        node, known = ast.fix_missing_locations(ast.copy_location(call, node)), []
    return node
