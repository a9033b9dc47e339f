"""The one word that Terminal-Bench's adapter of SWE-bench prints between two marks: PASSED or FAILED."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rock_env.grading.outcomes import Outcome, Unreadable, worst

__all__ = ["parse_swebench"]

_STARTS = re.compile(r"^SWEBench results starts here[^\S\n]*$", re.M)
_ENDS = re.compile(r"^[^\S\n]*SWEBench results ends here", re.M)
_WORDS = {"PASSED": Outcome.PASSED, "FAILED": Outcome.FAILED}


def parse_swebench(text: str) -> Mapping[str, Outcome]:
    """Return the outcome of the one test `tests`: of several results the worst."""
    said = []
    start = _STARTS.search(text)
    while start and (end := _ENDS.search(text, start.end())):
        said.append(text[start.end() : end.start()].strip())
        start = _STARTS.search(text, end.end())
    if not said:
        raise Unreadable("there is no line 'SWEBench results starts here' with a result behind it")
    unknown = [word for word in said if word not in _WORDS]
    if unknown:
        raise Unreadable(f"its result is {unknown[0][:60]!r}, expected PASSED or FAILED")
    return worst(("tests", _WORDS[word]) for word in said)
