"""The bug families an agent is trained on. Each is a function from a file to changes that look like human slips.

A family only proposes: which of its bugs are real is found by running the tests.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from sandboxes.swe.bugs.source import Function, Source

__all__ = [
    "Change",
    "missing_edge_case",
    "missing_return",
    "off_by_one",
    "wrong_default",
    "wrong_operator",
    "wrong_variable",
]

Change = tuple[Function, tuple[int, list[str], list[str]], str]
"""The function, the change as `Source` makes it, and what it is."""

_BOUNDARIES: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
}
_OPERATORS: dict[type[ast.AST], tuple[tuple[str, str], ...]] = {
    ast.Lt: (("<", ">"),),
    ast.LtE: (("<=", ">="),),
    ast.Gt: ((">", "<"),),
    ast.GtE: ((">=", "<="),),
    ast.Add: (("+", "-"),),
    ast.Sub: (("-", "+"),),
    ast.Mult: (("*", "+"), ("*", "//")),
    ast.Div: (("/", "//"), ("/", "*")),
    ast.FloorDiv: (("//", "%"), ("//", "/")),
    ast.Mod: (("%", "//"),),
    ast.Pow: (("**", "*"),),
    ast.And: (("and", "or"),),
    ast.Or: (("or", "and"),),
    ast.BitAnd: (("&", "|"),),
    ast.BitOr: (("|", "&"),),
    ast.BitXor: (("^", "|"),),
    ast.LShift: (("<<", ">>"),),
    ast.RShift: ((">>", "<<"),),
}
_TWINS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_LOOKALIKES = 2
"""So many other names are tried for each use of a name: those that look most like it."""
_FALLBACKS = {"get": 1, "pop": 1, "setdefault": 1, "next": 1, "getattr": 2}
"""Calls with a fallback value, and its position."""


def off_by_one(source: Source) -> Iterator[Change]:
    """Move a boundary, a count, an index or the end of a range by one."""
    for function in source.functions:
        for node in function.walk():
            if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _BOUNDARIES:
                old, new = _BOUNDARIES[type(node.ops[0])]
                yield from _operator(source, function, (node.left, node.comparators[0]), (old, new))
                for side in (node.left, node.comparators[0]):
                    yield from _shifted(source, function, side)
            elif isinstance(node, ast.Compare):
                for side in node.comparators:
                    yield from _shifted(source, function, side, names=False)
            elif isinstance(node, ast.Subscript):
                ends = (
                    (node.slice.lower, node.slice.upper)
                    if isinstance(node.slice, ast.Slice)
                    else (node.slice,)
                )
                for end in ends:
                    yield from _shifted(source, function, end, names=isinstance(node.slice, ast.Slice))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
                for bound in node.args[:2]:
                    yield from _shifted(source, function, bound, names=True)
                if len(node.args) == 1 and (text := source.segment(node.args[0])):
                    yield function, source.swap(node.args[0], f"1, {text}"), "the range starts at 1"
            elif (
                isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and _is_one(node.right)
            ):
                if text := source.segment(node.left):
                    yield function, source.swap(node, text), "the step of one is missing"
            elif isinstance(node, ast.AugAssign) and _is_one(node.value):
                yield function, source.swap(node.value, "2"), "2 instead of 1"


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1 and node.value is not True


def _shifted(
    source: Source, function: Function, node: ast.expr | None, *, names: bool = False
) -> Iterator[Change]:
    """Yield the expression plus or minus one."""
    if node is None or not (text := source.segment(node)):
        return
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield function, source.swap(node, str(node.value + 1)), f"{node.value + 1} instead of {text}"
        if node.value > 0:
            yield function, source.swap(node, str(node.value - 1)), f"{node.value - 1} instead of {text}"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        if isinstance(node.operand, ast.Constant) and type(node.operand.value) is int:
            yield function, source.swap(node, f"-{node.operand.value + 1}"), f"one below {text}"
    elif names and isinstance(node, ast.Name | ast.Call | ast.Attribute):
        yield function, source.swap(node, f"{text} - 1"), f"one below {text}"
        yield function, source.swap(node, f"{text} + 1"), f"one above {text}"


def _operator(
    source: Source, function: Function, sides: tuple[ast.expr, ast.expr], change: tuple[str, str]
) -> Iterator[Change]:
    left, right = sides
    between = source.between(left, right)
    place = re.search(rf"(?<![^\s()]){re.escape(change[0])}(?![^\s()])", between)
    if place is None:
        return
    start = (left.end_col_offset or 0) + place.start()
    edit = source.cut(right.lineno, start, start + len(change[0]), change[1])
    yield function, edit, f"`{change[1]}` instead of `{change[0]}`"


def wrong_operator(source: Source) -> Iterator[Change]:
    """Take the opposite comparison, another arithmetic operator, `or` for `and`, `max` for `min`, or `=` for `+=`."""
    for function in source.functions:
        for node in function.walk():
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                for pair in _OPERATORS.get(type(node.ops[0]), ()):
                    yield from _operator(source, function, (node.left, node.comparators[0]), pair)
            elif isinstance(node, ast.BinOp) and not (_is_text(node.left) or _is_text(node.right)):
                for pair in _OPERATORS.get(type(node.op), ()):
                    yield from _operator(source, function, (node.left, node.right), pair)
            elif isinstance(node, ast.BoolOp):
                for pair in _OPERATORS[type(node.op)]:
                    yield from _operator(source, function, (node.values[0], node.values[1]), pair)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.expr):
                for old, new in _OPERATORS.get(type(node.op), ()):
                    if not _is_text(node.value):
                        change = (f"{old}=", f"{new}=")
                        yield from _operator(source, function, (node.target, node.value), change)
                    yield from _operator(source, function, (node.target, node.value), (f"{old}=", "="))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _TWINS:
                other = _TWINS[node.func.id]
                yield function, source.swap(node.func, other), f"`{other}` instead of `{node.func.id}`"


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def wrong_variable(source: Source) -> Iterator[Change]:
    """Use another variable of the same function, or another attribute of the same object."""
    for function in source.functions:
        first_set: dict[str, int] = dict.fromkeys(function.parameters(), 0)
        for node in function.walk():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                first_set.setdefault(node.id, node.lineno)
        called = {id(node.func) for node in function.walk() if isinstance(node, ast.Call)}
        opposite = _other_sides(source, function)
        for node in function.walk():
            if not isinstance(node, ast.Name | ast.Attribute) or id(node) in called:
                continue
            others: list[str] = []
            if isinstance(node, ast.Attribute):
                if isinstance(node.value, ast.Name) and node.value.id == "self":
                    others = [f"self.{name}" for name in function.attributes]
            elif node.id in first_set:
                others = [name for name, line in first_set.items() if line < node.lineno]
            if isinstance(node.ctx, ast.Load):
                rivals = [name for name in others if name != opposite.get(id(node))]
                yield from _other_names(source, function, node, rivals)


def _other_sides(source: Source, function: Function) -> dict[int, str]:
    """Return for each side of a comparison or operation the text of the other: nobody writes `x < x` by mistake."""
    sides: dict[int, str] = {}
    for node in function.walk():
        pair = (node.left, node.right) if isinstance(node, ast.BinOp) else None
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            pair = node.left, node.comparators[0]
        if pair is not None:
            sides |= {id(pair[0]): source.segment(pair[1]), id(pair[1]): source.segment(pair[0])}
    return sides


def _other_names(source: Source, function: Function, node: ast.expr, others: list[str]) -> Iterator[Change]:
    text = source.segment(node)

    def likeness(name: str) -> float:
        return SequenceMatcher(None, text, name).ratio()

    rivals = sorted((name for name in others if text and name != text), key=likeness, reverse=True)
    for other in rivals[:_LOOKALIKES]:
        yield function, source.swap(node, other), f"`{other}` instead of `{text}`"


def missing_return(source: Source) -> Iterator[Change]:
    """Compute a result and forget to return it."""
    for function in source.functions:
        for block in function.blocks():
            for statement in block:
                if not isinstance(statement, ast.Return) or statement.value is None:
                    continue
                if isinstance(statement.value, ast.Constant | ast.Name | ast.Attribute):
                    if len(block) > 1:
                        yield function, source.remove(statement), "the line that returns is missing"
                elif source.segment(statement):
                    start, end = statement.col_offset, statement.value.col_offset
                    edit = source.cut(statement.lineno, start, end, "")
                    yield function, edit, "`return` is missing"


def wrong_default(source: Source) -> Iterator[Change]:
    """Take another default of an argument, another fallback, or another starting value."""
    for function in source.functions:
        arguments = function.node.args
        defaults: list[ast.expr] = [*arguments.defaults, *(one for one in arguments.kw_defaults if one)]
        for node in function.walk():
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                place = _FALLBACKS.get(name)
                if place is not None and len(node.args) > place:
                    defaults.append(node.args[place])
            elif isinstance(node, ast.Assign) and isinstance(node.targets[-1], ast.Name | ast.Attribute):
                defaults.append(node.value)
        for value in defaults:
            if not (text := source.segment(value)):
                continue
            for other in _other_values(value):
                yield function, source.swap(value, other), f"`{other}` instead of `{text}`"


def _other_values(node: ast.expr) -> tuple[str, ...]:
    if not isinstance(node, ast.Constant):
        return ()
    value = node.value
    if isinstance(value, bool):
        return (str(not value),)
    if isinstance(value, int):
        return (str(value + 1), str(value - 1)) if value > 0 else ("1",)
    if isinstance(value, float):
        return ("1.0",) if value != 1.0 else ("0.0",)
    if isinstance(value, str):
        return ('" "',) if value == "" else ('""',)
    return ("0",) if value is None else ()


def missing_edge_case(source: Source) -> Iterator[Change]:
    """Leave out a guard, one half of a condition, or the limit on a value."""
    for function in source.functions:
        for block in function.blocks():
            for statement in block[:-1]:
                if isinstance(statement, ast.If) and not statement.orelse and len(statement.body) == 1:
                    leaves = ast.Return | ast.Raise | ast.Continue | ast.Break
                    if isinstance(statement.body[0], leaves):
                        yield function, source.remove(statement), "a guard is missing"
        for node in function.walk():
            if isinstance(node, ast.BoolOp) and len(node.values) == 2:
                for kept in node.values:
                    if (text := source.segment(kept)) and source.segment(node):
                        yield function, source.swap(node, text), "one half of a condition is missing"
            elif isinstance(node, ast.IfExp) and source.segment(node):
                if text := source.segment(node.body):
                    yield function, source.swap(node, text), "the other case is missing"
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                limits = node.func.id in ("min", "max") and len(node.args) == 2 and source.segment(node)
                for kept in node.args if limits else ():
                    if not isinstance(kept, ast.Constant) and (text := source.segment(kept)):
                        yield function, source.swap(node, text), "a limit on a value is missing"
