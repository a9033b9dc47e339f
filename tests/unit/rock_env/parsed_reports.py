"""Reports of test runners read into outcomes, for the tests of the parsers."""

from __future__ import annotations

from typing import Any

from rock_env.grading import PARSERS, Outcome
from rock_env.grading.parsers import Left

P, F, S, E = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED, Outcome.ERROR


def read(parser: str, text: str = "", **left: Any) -> dict[str, Outcome]:
    return dict(PARSERS[parser](Left(stdout=text.encode(), **left)).outcomes)
