"""Reports of test runners read into outcomes, for the tests of the parsers."""

from __future__ import annotations

from rock_env.grading import PARSERS, Outcome
from rock_env.grading.parsers import Left

P, F, S, E = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.ERROR


def read(parser: str, text: str = "", **left: object) -> dict[str, Outcome]:
    return dict(PARSERS[parser](Left(stdout=text.encode(), **left)).outcomes)  # type: ignore[arg-type]
