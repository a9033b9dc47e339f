"""Hidden tests in two halves: steps that a box carries out, and claims about what came of them, judged here.

A step is one call or assignment of a test, without what the test expects of it: no expected value, no `pytest.raises`, no
`is`, no truth and no test's name enters the box, and a step whose error is wanted looks like any other. Loops over plain
values are unrolled, and what only serves a claim stays here. `split` reads our own tests, whose plain expressions it
evaluates; never those of a stranger.
"""

from __future__ import annotations

import ast
import builtins
import copy
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

__all__ = ["Raised", "Said", "SplitFile", "Unsplittable", "split"]


class Unsplittable(Exception):
    """A test has a form that cannot be judged by values; the message names it."""


@dataclass(frozen=True, slots=True)
class Raised:
    """A step raised."""

    kinds: tuple[str, ...]
    """The class of the exception and those above it, as `module.name`."""
    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """What a box said."""

    outcomes: Sequence[object]
    """By the number of the step: a plain value, `Other` or `Raised`."""
    identities: Sequence[str]
    """By the number of the step: the same text for the same object; of no meaning for a step that raised."""
    exceptions: Mapping[str, str]
    """The project's exception classes, as `module.name`, by each name they are found under."""

    def value(self, step: int) -> object:
        """Return a step's value. Raise `LookupError` if it raised."""
        outcome = self.outcomes[step]
        if isinstance(outcome, Raised):
            raise LookupError(f"step {step} raised {outcome.kinds[:1]}")
        return outcome


Term = Callable[[Said], Any]


@dataclass(frozen=True, slots=True)
class SplitFile:
    """One test file: the source of its steps, and the claims of each test, by its name."""

    head: tuple[str, ...]
    tests: tuple[tuple[str, ...], ...]
    claims: Mapping[str, tuple[Term, ...]]

    @property
    def count(self) -> int:
        """Return how many steps it has, those of `head` first."""
        return len(self.head) + sum(map(len, self.tests))

    def passed(self, test: str, said: Said) -> bool:
        """Return whether all claims of a test hold; one that cannot be looked at does not."""
        try:
            return test in self.claims and all(claim(said) for claim in self.claims[test])
        except (LookupError, TypeError, ValueError, ArithmeticError, RecursionError):
            return False


@lru_cache(maxsize=256)
def split(source: bytes) -> SplitFile:
    """Split a test file. Raise `Unsplittable`."""
    head = _Half(0)
    functions = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef):
            functions.append(statement)
        else:
            head.statement(statement)
    number = len(head.steps)
    tests: list[tuple[str, ...]] = []
    claims: dict[str, tuple[Term, ...]] = {}
    for function in functions:
        if not function.name.startswith("test") or function.args.args or function.decorator_list:
            raise Unsplittable(f"the function {function.name}, which is no plain test")
        half = _Half(number, dict(head.known), dict(head.unsent), imported=dict(head.imported))
        for statement in function.body:
            half.statement(statement)
        number += len(half.steps)
        tests.append(tuple(half.steps))
        claims[function.name] = (*head.claims, *half.claims)
    return SplitFile(tuple(head.steps), tuple(tests), claims)


class _Near:
    """Stands for `pytest.approx` of a number, with its default tolerance."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, wanted: float) -> None:
        self._wanted = wanted

    def __eq__(self, got: object) -> bool:
        near = max(1e-6 * abs(self._wanted), 1e-12)
        return bool(abs(got - self._wanted) <= near)  # type: ignore[operator]


_PYTEST = SimpleNamespace(approx=_Near)
_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}
_JUDGING = (ast.Compare, ast.BoolOp, ast.IfExp)
"""Has no place in what an assertion sends into a box: it could hold what is expected."""


@dataclass
class _Half:
    """Takes statements of one test, or those around the tests, and makes steps and claims of them."""

    first: int
    known: dict[str, Any] = field(default_factory=lambda: {"pytest": _PYTEST})
    """Names whose values are known without the project."""
    unsent: dict[str, ast.stmt] = field(default_factory=dict)
    """Statements that bind a name which no step has needed yet."""
    looped: set[str] = field(default_factory=set)
    """Known names that a loop bound: a step has their value in their place, so that it does not tell of the loop."""
    imported: dict[str, str] = field(default_factory=dict)
    """What a name was imported as, as `module.name`."""
    steps: list[str] = field(default_factory=list)
    claims: list[Term] = field(default_factory=list)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Import(names=[ast.alias(name="pytest", asname=None)]):
                return
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for alias in names:
                    name = alias.asname or alias.name
                    self._bound(name, ast.ImportFrom(module, [alias], 0))
                    self.imported[name] = f"{module}.{alias.name}"
            case ast.Assign(targets=[ast.Name() | ast.Tuple() as target], value=value) if self._is_known(
                value
            ):
                self._bind(target, self._evaluated(value))
            case ast.Assign(targets=[target]) | ast.AugAssign(target=target):
                self._raises_nothing(self._sent(node))
                for name in _names(target, ast.Store):
                    self._forgotten(name)
            case ast.Expr(value=value):
                self._raises_nothing(self._sent(value))
            case ast.Assert(test=test):
                self.claims.append(self._truth(test))
            case ast.For(target=target, iter=items, body=body, orelse=[]) if self._is_known(items):
                for item in self._evaluated(items):
                    self._bind(target, item)
                    self.looped.update(_names(target, ast.Store))
                    for each in body:
                        self.statement(each)
            case ast.With(items=[ast.withitem(call, None)], body=[ast.Expr(value=inner)]):
                self._wanted_error(call, inner)
            case _:
                raise Unsplittable(f"the statement {ast.unparse(node)!r}")

    def _bound(self, name: str, by: ast.stmt) -> None:
        self._forgotten(name)
        self.unsent[name] = by

    def _bind(self, target: ast.expr, value: object) -> None:
        """Bind names to a plain value; the box hears of each when a step needs it."""
        if not _is_names(target):
            raise Unsplittable(f"the target {ast.unparse(target)!r}")
        found: dict[str, Any] = {"value": value}
        binding = ast.Assign([target], ast.Name("value", ast.Load()), lineno=0)
        _execute(ast.Module([binding], []), found)
        for name in _names(target, ast.Store):
            written = ast.parse(f"{name} = {found[name]!r}").body[0]
            assert isinstance(written, ast.Assign)
            if not self._is_known(written.value) or self._evaluated(written.value) != found[name]:
                raise Unsplittable(f"the value {found[name]!r}")
            self._bound(name, written)
            self.known[name] = found[name]

    def _forgotten(self, name: str) -> None:
        self.known.pop(name, None)
        self.unsent.pop(name, None)
        self.imported.pop(name, None)
        self.looped.discard(name)

    def _is_known(self, node: ast.expr) -> bool:
        """Return whether an expression has the same value whatever the project does."""
        free = set(_names(node, ast.Load)) - _bound_in(node)
        return not isinstance(node, ast.Lambda) and all(
            name in self.known or (name not in self.unsent and hasattr(builtins, name)) for name in free
        )

    def _evaluated(self, node: ast.expr) -> Any:
        whole = ast.fix_missing_locations(ast.Expression(node))
        return eval(compile(whole, "claim", "eval"), dict(self.known))

    def _sent(self, node: ast.expr | ast.stmt) -> int:
        """Make a step of an expression or statement, after what binds its names; return its number."""
        bound = _bound_in(node)
        node = _Filled({name: self.known[name] for name in self.looped - bound}).visit(copy.deepcopy(node))
        for name in _names(node, ast.Load):
            if (binding := self.unsent.pop(name, None)) is not None:
                self._raises_nothing(self._sent(binding))
        self.steps.append(ast.unparse(node))
        return self.first + len(self.steps) - 1

    def _raises_nothing(self, step: int) -> None:
        self.claims.append(lambda said: not isinstance(said.outcomes[step], Raised))

    def _truth(self, node: ast.expr) -> Term:
        match node:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._truth(operand)
                return lambda said: not inner(said)
            case ast.BoolOp(op=ast.And(), values=values):
                parts = [self._truth(each) for each in values]
                return lambda said: all(part(said) for part in parts)
            case ast.Compare(left=left, ops=[ast.Is()], comparators=[right]) if not (
                isinstance(left, ast.Constant) or isinstance(right, ast.Constant)
            ):
                return self._same_object(left, right)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compared([left, *others], [type(each) for each in ops])
        return self._got(node)

    def _compared(self, sides: list[ast.expr], ops: list[type[ast.cmpop]]) -> Term:
        known = [self._is_known(each) for each in sides]
        if all(known):
            known[0] = False  # it is asked what the project made of it
        for at, each in enumerate(ops):
            plain = (isinstance(side, ast.Constant) for side in sides[at : at + 2])
            if each in (ast.Is, ast.IsNot) and not any(plain):
                raise Unsplittable(f"the identity of {ast.unparse(sides[at])!r}")
        terms = [
            self._constant(side) if is_known else self._got(side)
            for side, is_known in zip(sides, known, strict=True)
        ]
        tests = [_COMPARED[each] for each in ops]

        def holds(said: Said) -> bool:
            values = [term(said) for term in terms]
            return all(test(values[at], values[at + 1]) for at, test in enumerate(tests))

        return holds

    def _same_object(self, left: ast.expr, right: ast.expr) -> Term:
        one, two = self._asked(left), self._asked(right)
        return lambda said: (
            said.value(one) == said.value(two) and said.identities[one] == said.identities[two]
        )

    def _constant(self, node: ast.expr) -> Term:
        value = self._evaluated(node)
        return lambda said: value

    def _got(self, node: ast.expr) -> Term:
        step = self._asked(node)
        return lambda said: said.value(step)

    def _asked(self, node: ast.expr) -> int:
        if any(isinstance(each, _JUDGING) or _is_not(each) for each in ast.walk(node)):
            raise Unsplittable(f"the expression {ast.unparse(node)!r}")
        return self._sent(node)

    def _wanted_error(self, call: ast.expr, inner: ast.expr) -> None:
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="pytest"), attr="raises"),
                args=[ast.Name(id=name)],
                keywords=[] | [ast.keyword(arg="match", value=ast.Constant())] as words,
            ):
                pattern = ast.literal_eval(words[0].value) if words else ""
            case _:
                raise Unsplittable(f"the block of {ast.unparse(call)!r}")
        imported = self.imported.get(name, "")
        step = self._sent(inner)

        def came(said: Said) -> bool:
            outcome = said.outcomes[step]
            kind = said.exceptions.get(imported, "") if imported else f"builtins.{name}"
            return (
                isinstance(outcome, Raised)
                and kind in outcome.kinds
                and re.search(pattern, outcome.text) is not None
            )

        self.claims.append(came)


class _Filled(ast.NodeTransformer):
    """Puts plain values in the place of names."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._values:
            return node
        return ast.parse(repr(self._values[node.id]), mode="eval").body


def _is_names(target: ast.expr) -> bool:
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return all(isinstance(each, ast.Name) for each in parts)


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _names(node: ast.AST, context: type[ast.expr_context]) -> Iterator[str]:
    """Yield the names that are read or bound below a node, each once, in their order."""
    found = (each for each in ast.walk(node) if isinstance(each, ast.Name))
    yield from dict.fromkeys(each.id for each in found if isinstance(each.ctx, context))


def _bound_in(node: ast.AST) -> set[str]:
    """Return the names that an expression or statement binds itself."""
    arguments = {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
    return arguments.union(_names(node, ast.Store))


def _execute(module: ast.Module, names: dict[str, Any]) -> None:
    exec(compile(ast.fix_missing_locations(module), "binding", "exec"), names)
