"""The bug families that no agent is trained on: they are only in the split `held_out_family`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from sandboxes.swe.bugs.families import Change
from sandboxes.swe.bugs.source import Function, Source

__all__ = ["exception_swallowed", "inverted_condition", "swapped_arguments"]

_OPPOSITES: dict[type[ast.AST], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", ">="),
    ast.LtE: ("<=", ">"),
    ast.Gt: (">", "<="),
    ast.GtE: (">=", "<"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
_SYMMETRIC = frozenset({"isinstance", "issubclass", "max", "min", "zip"})
"""Calls whose swapped arguments mean the same, or which nobody would confuse."""

_PAIR = 2


def swapped_arguments(source: Source) -> Iterator[Change]:
    """Pass two neighbouring arguments of a call in the wrong order, or the two parts of a pair."""
    for function in source.functions:
        for node in function.walk():
            parts: list[ast.expr] = []
            if isinstance(node, ast.Call):
                symmetric = isinstance(node.func, ast.Name) and node.func.id in _SYMMETRIC
                parts = [] if symmetric else node.args
            elif isinstance(node, ast.Tuple) and len(node.elts) == _PAIR:
                parts = node.elts
            for one, two in pairwise(parts):
                if isinstance(one, ast.Starred) or isinstance(two, ast.Starred):
                    continue
                first, gap, second = source.segment(one), source.between(one, two), source.segment(two)
                if first and gap and second and first != second:
                    edit = source.cut(
                        one.lineno, one.col_offset, two.end_col_offset or 0, f"{second}{gap}{first}"
                    )
                    yield function, edit, f"`{second}` is passed before `{first}`"


def exception_swallowed(source: Source) -> Iterator[Change]:
    """Go on as if nothing had happened where an error belongs."""
    for function in source.functions:
        for node in function.walk():
            if isinstance(node, ast.Raise):
                line, old, _ = source.remove(node)
                for instead in ("return None", "pass"):
                    edit = line, old, [f"{source.indent(node)}{instead}"]
                    yield function, edit, f"`{instead}` instead of an error"
        for block in function.blocks():
            for statement in block:
                if isinstance(statement, ast.Assign | ast.Expr | ast.Return | ast.AugAssign):
                    yield from _wrapped(source, function, statement)


def _wrapped(source: Source, function: Function, statement: ast.stmt) -> Iterator[Change]:
    """Yield the statement in a `try` whose `except` gives None."""
    risky = any(isinstance(node, ast.Call | ast.Subscript) for node in ast.walk(statement))
    if not risky or not source.segment(statement):
        return
    indent = source.indent(statement)
    line, old, _ = source.remove(statement)
    if old != [indent + source.segment(statement)]:
        return
    new = [f"{indent}try:", f"    {old[0]}", f"{indent}except Exception:", f"{indent}    return None"]
    yield function, (line, old, new), "every error becomes None"


def inverted_condition(source: Source) -> Iterator[Change]:
    """Ask for the opposite."""
    for function in source.functions:
        for node in function.walk():
            if isinstance(node, ast.If | ast.IfExp):
                yield from _opposite(source, function, node.test)
            elif isinstance(node, ast.comprehension):
                for test in node.ifs:
                    yield from _opposite(source, function, test)
            elif isinstance(node, ast.Return) and isinstance(node.value, ast.Compare):
                yield from _opposite(source, function, node.value)


def _opposite(source: Source, function: Function, test: ast.expr) -> Iterator[Change]:
    if not (text := source.segment(test)):
        return
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield function, source.swap(test, source.segment(test.operand)), "`not` is missing"
    elif isinstance(test, ast.Compare) and len(test.ops) == 1:
        old, new = _OPPOSITES[type(test.ops[0])]
        between = source.between(test.left, test.comparators[0])
        start = test.left.end_col_offset or 0
        edit = source.cut(test.lineno, start, start + len(between), between.replace(old, new, 1))
        yield function, edit, f"`{new}` instead of `{old}`"
    else:
        simple = isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        yield function, source.swap(test, f"not {text}" if simple else f"not ({text})"), "`not` too much"
