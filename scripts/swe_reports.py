"""Bug reports in plain words, made from tests that fail: what was called, what came of it, what was expected.

Used by `swe_tasks.py`. A test file is rewritten so that a failing test leaves its last statement, the value it got and the
value it wanted in its frame; the rewritten tests succeed and fail as the original ones do.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Mapping
from typing import Any

__all__ = ["instrumented", "report_of"]

_MOST_CHARS = 90
"""A value or call that is longer makes no readable report."""
_MOST_SETUP_LINES = 5


def instrumented(text: str) -> str:
    """Return the test file with the notes that `report_of` reads."""
    tree = ast.parse(text)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            node.body = _noted(node.body)
    return ast.unparse(ast.fix_missing_locations(tree))


def _noted(block: list[ast.stmt]) -> list[ast.stmt]:
    made: list[ast.stmt] = []
    for statement in block:
        made.append(_assign("at_", ast.Constant(statement.lineno)))
        if isinstance(statement, ast.Assert):
            got, want, test = _sides(statement.test)
            made.append(_assign("raw_", ast.Constant(value=True)))
            made.append(_assign("got_", got))
            if want is not None:
                made.append(_assign("want_", want))
            made.append(_assign("raw_", ast.Constant(value=False)))
            made.append(ast.Assert(test, statement.msg))
            continue
        if isinstance(statement, ast.With) and len(statement.body) == 1:
            inner = statement.body[0]
            if isinstance(inner, ast.Expr):
                statement.body = [_assign("got_", inner.value)]
        elif isinstance(statement, ast.For | ast.With):
            statement.body = _noted(statement.body)
        made.append(statement)
    return made


def _assign(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _sides(test: ast.expr) -> tuple[ast.expr, ast.expr | None, ast.expr]:
    """Return what is computed, what it is compared to, and the test on the two notes."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        names: tuple[ast.expr, ast.expr] = (ast.Name("got_", ast.Load()), ast.Name("want_", ast.Load()))
        return test.left, test.comparators[0], ast.Compare(names[0], test.ops, [names[1]])
    return test, None, ast.Name("got_", ast.Load())


def report_of(text: str, name: str, error: BaseException, values: Mapping[str, Any]) -> str:
    """Return the report that test `name` of the file `text` gives, or an empty string where it gives no readable one.

    `values` are the globals and locals of the test's frame as the rewritten test left them.
    """
    tree = ast.parse(text)
    tests = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    function = next(tests, None)
    if function is None or "at_" not in values:
        return ""
    known = {*_imported(tree), *dir(builtins)}
    values = {key: value for key, value in values.items() if key not in known and not key.startswith("__")}
    path = _path_to(function.body, values["at_"])
    if not path:
        return ""
    statement = path[-1]
    call, outcome = _what_happened(statement, error, values)
    if call is None or not outcome:
        return ""
    shown, setup = _shown(call, path, function, values)
    if not shown or len(shown) > _MOST_CHARS or "\n" in shown or len(setup) > _MOST_SETUP_LINES:
        return ""
    body = f"`{shown}` {outcome}"
    if not setup:
        return body
    return "After\n\n" + "\n".join(f"    {line}" for line in setup) + f"\n\n{body}"


def _imported(tree: ast.Module) -> set[str]:
    """Return the names that the reader of a report knows: what the test file imports."""
    imports = (node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _path_to(block: list[ast.stmt], line: int) -> list[ast.stmt]:
    """Return the statements that come before the one on `line` on its way, and itself last."""
    before: list[ast.stmt] = []
    for statement in block:
        if statement.lineno == line:
            return [*before, statement]
        inner = getattr(statement, "body", [])
        if inner and statement.lineno < line <= (statement.end_lineno or 0):
            rest = _path_to(inner, line)
            return [*before, *rest] if rest else []
        before.append(statement)
    return []


def _what_happened(
    statement: ast.stmt, error: BaseException, values: Mapping[str, Any]
) -> tuple[ast.expr | None, str]:
    if isinstance(statement, ast.Assert):
        call, want, _ = _sides(statement.test)
        wanted = _wanted(statement.test, want, values)
        verb = "returns" if isinstance(call, ast.Call) else "is"
        if values.get("raw_"):
            raised = "" if isinstance(error, AssertionError) else _raised(error)
            wanted = _wanted(statement.test, want, {**values, "want_": _literal(want)})
            return call, f"fails with {raised}; {wanted}." if raised and wanted else ""
        got = _told(values.get("got_"))
        return call, f"{verb} {got}; {wanted}." if got and wanted else ""
    if isinstance(statement, ast.With) and len(statement.items) == 1 and len(statement.body) == 1:
        context, inner = statement.items[0].context_expr, statement.body[0]
        if isinstance(context, ast.Call) and ast.unparse(context.func) == "pytest.raises" and context.args:
            call = inner.value if isinstance(inner, ast.Expr | ast.Assign) else None
            wanted = f"it should raise {ast.unparse(context.args[0])}"
            if type(error).__name__ == "Failed":
                got = _told(values.get("got_"))
                return call, f"returns {got}; {wanted}." if got else ""
            raised = "" if isinstance(error, AssertionError) else _raised(error)
            return call, f"fails with {raised}; {wanted}." if raised else ""
    if isinstance(statement, ast.Expr | ast.Assign) and not isinstance(error, AssertionError):
        return statement.value, f"fails with {_raised(error)}."
    return None, ""


def _wanted(test: ast.expr, want: ast.expr | None, values: Mapping[str, Any]) -> str:
    if want is None:
        truth = "false" if isinstance(test, ast.UnaryOp) else "true"
        return f"it should be {truth}"
    told = _told(values.get("want_"))
    operator = test.ops[0] if isinstance(test, ast.Compare) else None
    if not told:
        return ""
    words = {
        ast.Eq: "it should be",
        ast.Is: "it should be",
        ast.In: "it should be one of",
        ast.NotEq: "it should not be",
        ast.IsNot: "it should not be",
        ast.NotIn: "it should not be one of",
        ast.Lt: "it should be less than",
        ast.Gt: "it should be greater than",
        ast.LtE: "it should be at most",
        ast.GtE: "it should be at least",
    }
    return f"{words[type(operator)]} {told}" if type(operator) in words else ""


def _literal(want: ast.expr | None) -> object:
    """Return what is compared to where it is written out; the failing test did not come to compute it."""
    try:
        return ast.literal_eval(want) if want is not None else None
    except ValueError:
        return _Unknown()


class _Unknown:
    """A value that cannot be told."""


def _told(value: object) -> str:
    text = repr(value).split(" ± ")[0]
    return "" if len(text) > _MOST_CHARS or "\n" in text or " at 0x" in text else text


def _raised(error: BaseException) -> str:
    text = str(error)
    short = not text or len(text) > _MOST_CHARS or "\n" in text or " at 0x" in text
    return type(error).__name__ if short else f"{type(error).__name__}: {text}"


class _Filled(ast.NodeTransformer):
    """Puts the values of plain variables in their places."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.values:
            return node
        value = self.values[node.id]
        if not isinstance(value, str | int | float | bool | tuple | type(None)):
            return node
        try:
            return ast.parse(repr(value), mode="eval").body
        except SyntaxError:
            return node


def _shown(
    call: ast.expr, path: list[ast.stmt], function: ast.FunctionDef, values: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """Return the call as it is told, and the lines that it needs before."""
    filled = _Filled(values).visit(copy.deepcopy(call))
    local = {name for name in values if not name.endswith("_")}
    names = {node.id for node in ast.walk(filled) if isinstance(node, ast.Name)}
    if not names & local and any(isinstance(node, ast.Call) for node in ast.walk(filled)):
        return ast.unparse(filled), []
    arguments = {argument.arg for argument in function.args.args}
    setup = [one for one in path[:-1] if not isinstance(one, ast.Assert | ast.With)]
    used = {node.id for one in [*setup, call] for node in ast.walk(one) if isinstance(node, ast.Name)}
    if used & arguments or any(not isinstance(one, ast.Assign | ast.Expr | ast.AugAssign) for one in setup):
        return "", []
    bound = {
        node.id
        for one in setup
        for node in ast.walk(one)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    needed = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)} & local
    if needed - bound:
        return "", []
    return ast.unparse(call), [ast.unparse(one) for one in setup]
