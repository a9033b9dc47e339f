"""One question with its exact answer, and its text form: the payload of a task.

Made by `families`, read by the environment and the oracle. An answer is one rational number for each value asked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from rock_env.errors import InvalidArgument

__all__ = ["MathProblem", "Style", "parse"]

Style = Literal["words", "symbols"]


@dataclass(frozen=True, slots=True)
class MathProblem:
    """Two wordings of one question. The level is not part of it, so that equal questions are equal whatever their level."""

    family: str
    words: str
    """A sentence."""
    symbols: str
    """As short as it can be said."""
    answer: tuple[Fraction, ...]
    names: tuple[str, ...] = ()
    """The unknowns asked for, in the order of `answer`; empty where the question has one nameless value."""

    def question(self, style: Style) -> str:
        """Return the wording of that style."""
        return self.words if style == "words" else self.symbols

    def payload(self) -> str:
        """Return canonical JSON: equal problems give equal text."""
        return json.dumps(
            {
                "family": self.family,
                "words": self.words,
                "symbols": self.symbols,
                "answer": [str(value) for value in self.answer],
                "names": list(self.names),
            }
        )


def parse(payload: str) -> MathProblem:
    """Return the problem of a payload. Raise `InvalidArgument` if it is none."""
    try:
        values = json.loads(payload)
        problem = MathProblem(
            family=str(values["family"]),
            words=str(values["words"]),
            symbols=str(values["symbols"]),
            answer=tuple(Fraction(str(value)) for value in values["answer"]),
            names=tuple(str(name) for name in values["names"]),
        )
    except (ValueError, KeyError, TypeError, ZeroDivisionError) as error:
        raise InvalidArgument(
            f"not a math problem: got {payload[:80]!r}. Pass a task of this environment."
        ) from error
    if len(problem.answer) != max(1, len(problem.names)):
        raise InvalidArgument(
            f"a math problem needs one answer for each of its unknowns {problem.names}, got {len(problem.answer)}."
        )
    return problem
