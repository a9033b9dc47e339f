"""Hidden tests without their expected values: the box says what a comparison got, and the grader compares.

`taken_out` rewrites test files before they enter a box, `judge` compares afterwards, outside of the box's interpreter. So an
object that claims to equal everything equals nothing, and a value that never enters the box is not found there. Comparisons
with what is no plain value, other assertions (raises, identity, truth) and helpers' loops stay as they are; `Claims.left`
counts them.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

__all__ = ["Claims", "Other", "decoded", "judge", "taken_out"]

_PLAIN = (type(None), bool, int, float, str, bytes, list, tuple, dict, set, frozenset)
_UNITTEST = (
    "assertEqual",
    "assertEquals",
    "assertListEqual",
    "assertDictEqual",
    "assertTupleEqual",
    "assertSetEqual",
)
_LEAVING = (ast.Return, ast.Yield, ast.YieldFrom)
"""A test with one of them may end before its last comparison."""
_TWO = 2


@dataclass(frozen=True, slots=True)
class _Claim:
    test: str
    """`file.py::Class::test`, or an empty text in a helper."""
    certain: bool
    """A passed test came by it."""
    expected: tuple[object, ...]
    """The value, if the test names it; else the box says it, too."""
    rows: tuple[object, ...] = ()
    """Values of a parameter that is nothing but expected: the box has their numbers instead, and says one."""


@dataclass(frozen=True, slots=True)
class Other:
    """An object that is no plain value, as the box told of it. It equals itself alone."""

    identity: str
    kind: str
    truth: bool

    def __bool__(self) -> bool:
        return self.truth


@dataclass(slots=True)
class Claims:
    """The comparisons that were taken out of some test files, by their numbers."""

    by_number: dict[int, _Claim] = field(default_factory=dict)
    left: int = 0
    """Assertions that stay in the box."""


def taken_out(
    files: Sequence[tuple[str, bytes]], module: str, claims: Claims, wanted: Iterable[str] = ()
) -> tuple[tuple[str, bytes], ...]:
    """Return the files with their comparisons replaced by calls of `module.same`; note in `claims` what was expected.

    `wanted` are tests as `file.py::test[case]`: the cases of those that name one keep their names.
    """
    named = frozenset(test.partition("[")[0] for test in wanted if "[" in test)
    return tuple((path, _Taking(path, module, claims, named).source(content)) for path, content in files)


def judge(claims: Claims, test: str, said: Iterable[str]) -> bool:
    """Return whether the values that a test said (`number JSON`, in any number) are as expected, and none is missing."""
    seen = set()
    for line in said:
        number, _, text = line.partition(" ")
        claim = claims.by_number.get(int(number) if number.isascii() and number.isdigit() else -1)
        if claim is None or not _is_right(claim, text):
            return False
        seen.add(int(number))
    name = test.partition("[")[0]
    return all(
        number in seen for number, claim in claims.by_number.items() if claim.certain and claim.test == name
    )


def _is_right(claim: _Claim, text: str) -> bool:
    try:
        got = [decoded(part) for part in json.loads(text)]
        if not got:
            return not claim.expected  # no plain values: compared in the box
        value, *told = got
        if claim.expected and told:
            return False  # it was not asked for
        (expected,) = claim.expected or told
        if claim.rows:
            expected = claim.rows[int(str(expected))]
        return bool(value == expected)
    except (ValueError, TypeError, ArithmeticError, IndexError, RecursionError):
        return False


def decoded(part: Any) -> object:
    """Return the value that the box wrote as JSON. Raise `ValueError`, `TypeError` or `ArithmeticError` for what is none."""
    kind, said = part
    match kind:
        case "n":
            return None
        case "B":
            return bool(said)
        case "i":
            return int(said, 16)
        case "f":
            return float(said)
        case "s":
            return str(said)
        case "b":
            return bytes.fromhex(said)
        case "l":
            return [decoded(each) for each in said]
        case "t":
            return tuple(decoded(each) for each in said)
        case "S":
            return {decoded(each) for each in said}
        case "d":
            return {decoded(key): decoded(value) for key, value in said}
        case "o":
            identity, name, truth = said
            return Other(str(identity), str(name), bool(truth))
        case "q":
            above, below = said
            return Fraction(int(above, 16), int(below, 16))
        case "D":
            return Decimal(said)
    raise ValueError(f"no kind of value: {kind!r}")


class _Taking(ast.NodeTransformer):
    """Takes the comparisons out of one file."""

    def __init__(self, path: str, module: str, claims: Claims, named: frozenset[str]) -> None:
        self._named = named
        self._rows: dict[str, tuple[object, ...]] = {}
        self._path = path
        self._module = module
        self._claims = claims
        self._owners: list[str] = []
        self._certain = False

    def source(self, content: bytes) -> bytes:
        tree = self.visit(ast.parse(content))
        call = f"\n\nfrom {self._module} import same as {self._module}_same\n"
        return (ast.unparse(ast.fix_missing_locations(tree)) + call).encode()

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._owners.append(node.name)
        self.generic_visit(node)
        self._owners.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        outer, self._certain = self._certain, False
        is_test = node.name.startswith("test") and not any(
            isinstance(each, _LEAVING) for each in ast.walk(node)
        )
        self._owners.append(node.name)
        outer_rows = self._rows
        self._rows = {} if self._test in self._named else _expected_only(node)
        body: list[ast.stmt] = []
        for statement in node.body:
            self._certain = is_test
            taken = self.visit(statement)
            body += taken if isinstance(taken, list) else [taken]
        node.body = body
        self._owners.pop()
        self._rows = outer_rows
        self._certain = outer
        return node

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        parts = (
            node.test.values
            if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And)
            else [node.test]
        )
        return [self._taken(part) or self._kept(part, node.msg) for part in parts]

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        match node.value:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name), args=args, keywords=[]):
                if name in _UNITTEST and len(args) >= _TWO:
                    return self._said(args[0], args[1])
                self._claims.left += name.startswith("assert")
        return self._inside(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.stmt):
            self._certain = False  # below a condition, a loop or a block that may end early
        return super().generic_visit(node)

    @property
    def _test(self) -> str:
        return f"{self._path}::{'::'.join(self._owners)}"

    def _inside(self, node: ast.Expr) -> ast.stmt:
        super().generic_visit(node)
        return node

    def _kept(self, part: ast.expr, message: ast.expr | None) -> ast.stmt:
        self._claims.left += 1
        return ast.Assert(part, message)

    def _taken(self, part: ast.expr) -> ast.stmt | None:
        match part:
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
                return self._said(left, right)
        return None

    def _said(self, left: ast.expr, right: ast.expr) -> ast.stmt:
        expected = _literal(right)
        if not expected and (swapped := _literal(left)):
            left, right, expected = right, left, swapped
        number = len(self._claims.by_number)
        rows = self._rows.get(right.id, ()) if isinstance(right, ast.Name) else ()
        self._claims.by_number[number] = _Claim(self._test, self._certain, expected, rows)
        words: list[ast.expr] = [ast.Constant(number), left, *([] if expected else [right])]
        return ast.Expr(ast.Call(ast.Name(f"{self._module}_same", ast.Load()), words, []))


def _expected_only(test: ast.FunctionDef) -> dict[str, tuple[object, ...]]:
    """Return the values of parameters that are but the right side of one comparison; leave numbers in their place."""
    read = [each.id for each in ast.walk(test) if isinstance(each, ast.Name)]
    asserted = [each.test for each in ast.walk(test) if isinstance(each, ast.Assert)]
    right = {
        part.comparators[0].id
        for part in asserted
        if isinstance(part, ast.Compare)
        and [type(each) for each in part.ops] == [ast.Eq]
        and isinstance(part.comparators[0], ast.Name)
    }
    found: dict[str, tuple[object, ...]] = {}
    for mark in test.decorator_list:
        match mark:
            case ast.Call(
                func=ast.Attribute(attr="parametrize"),
                args=[ast.Constant(value=str(names)), ast.List(elts=rows)],
                keywords=[],
            ):
                columns = [name.strip() for name in names.split(",")]
                for at, name in enumerate(columns):
                    if name in right and read.count(name) == 1 and len(columns) > 1:
                        found |= _numbered(name, at, rows)
    return found


def _numbered(name: str, at: int, rows: list[ast.expr]) -> dict[str, tuple[object, ...]]:
    cells = [row.elts for row in rows if isinstance(row, ast.Tuple) and len(row.elts) > at]
    values = [_literal(elements[at]) for elements in cells]
    if len(cells) < len(rows) or not all(values):
        return {}
    for number, elements in enumerate(cells):
        elements[at] = ast.Constant(number)
    return {name: tuple(value for (value,) in values)}


def _literal(node: ast.expr) -> tuple[object, ...]:
    """Return a plain value that stands there, or nothing."""
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ()
    return (value,) if _is_plain(value) else ()


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_plain, (*value.keys(), *value.values())))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)
