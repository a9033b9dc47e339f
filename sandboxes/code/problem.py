"""One function to write: how it is asked for, its solution, and the calls that grade it.

Made by `families`, used by the environment, the grade and the oracle. The solution's text is ours and runs on the host to
compute what a call must return; an answer of an agent never does.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from textwrap import fill, indent
from typing import Any

from rock_env.tasks import derive_seed

__all__ = ["Arguments", "Call", "CodeProblem", "Draw", "Row", "family"]

Arguments = tuple[Any, ...]
"""Of one call: integers, texts, truth values, lists and dictionaries of them with texts as keys."""
Draw = Callable[[Random], Arguments]
HIDDEN = 24
EXAMPLES = 3
_WIDTH = 100
_CANDIDATES = 160
"""Drawn arguments of which the calls are chosen."""


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments and what the solution returns for them."""

    arguments: Arguments
    returns: Any

    @property
    def expected(self) -> str:
        """Return the canonical JSON of what is returned: `1`, `true` and `"1"` are three values."""
        return json.dumps(self.returns, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Row:
    """What one function of a family has of its own. `body` is an expression or, on several lines, statements."""

    name: str
    returns: str
    """Ends the sentence "Return ..."."""
    body: str
    draw: Draw | None = None
    edges: tuple[Arguments, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CodeProblem:
    """A function to write; `name` is the function's, and no other problem has it."""

    family: str
    name: str
    signature: str
    sentence: str
    body: str
    draw: Draw
    edges: tuple[Arguments, ...]

    @property
    def solution(self) -> str:
        """Return the source of the function."""
        body = self.body.strip("\n") if "\n" in self.body else f"return {self.body}"
        return f"{self.signature}\n{indent(body, '    ')}\n"

    def question(self) -> str:
        """Return signature and docstring with examples, as a function that lacks its body."""
        examples = "".join(
            f"\n    >>> {self.name}({', '.join(map(repr, call.arguments))})\n    {call.returns!r}"
            for call in self.examples()
        )
        told = fill(f'"""{self.sentence}', _WIDTH, initial_indent="    ", subsequent_indent="    ")
        return f'{self.signature}\n{told}\n{examples}\n    """\n'

    def examples(self) -> tuple[Call, ...]:
        """Return the calls that the docstring shows."""
        return _calls(self)[:EXAMPLES]

    def hidden(self) -> tuple[Call, ...]:
        """Return the calls that grade: the edges and others, none of the examples."""
        return _calls(self)[EXAMPLES:]


@cache
def _calls(problem: CodeProblem) -> tuple[Call, ...]:
    """Choose arguments that make the results as different as possible, edges behind the examples."""
    space: dict[str, Any] = {}
    exec(compile(problem.solution, f"<solution {problem.name}>", "exec"), space)
    rng = Random(derive_seed("code", problem.name))
    drawn = [problem.draw(rng) for _ in range(_CANDIDATES)]
    edges = [_call(space[problem.name], arguments) for arguments in problem.edges]
    known = {json.dumps(call.arguments) for call in edges}
    by_result: dict[str, list[Call]] = {}
    for arguments in drawn:
        if (text := json.dumps(arguments)) not in known:
            known.add(text)
            call = _call(space[problem.name], arguments)
            by_result.setdefault(call.expected, []).append(call)
    turns = max(map(len, by_result.values()))
    chosen = [calls[turn] for turn in range(turns) for calls in by_result.values() if turn < len(calls)]
    chosen = chosen[: EXAMPLES + HIDDEN - len(edges)]
    return (*chosen[:EXAMPLES], *edges, *chosen[EXAMPLES:])


def _call(function: Callable[..., Any], arguments: Arguments) -> Call:
    copies = json.loads(json.dumps(arguments))  # a solution may change its arguments
    return Call(arguments, function(*copies))


def family(
    name: str, head: str, draw: Draw, edges: tuple[Arguments, ...], rows: tuple[Row, ...]
) -> tuple[CodeProblem, ...]:
    """Return the problems of a family. `head` is `(arguments) -> type`; a row may draw its own arguments."""
    return tuple(
        CodeProblem(
            family=name,
            name=row.name,
            signature=f"def {row.name}{head}:",
            sentence=f"Return {row.returns}.",
            body=row.body,
            draw=row.draw or draw,
            edges=edges if row.edges is None else row.edges,
        )
        for row in rows
    )
