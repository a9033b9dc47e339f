"""What became of a test, and how several reports of it make one: values only.

Used by the parsers and by whoever reads what they found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

__all__ = ["Outcome", "Unreadable", "worst"]


class Outcome(StrEnum):
    """The end of one test. What was expected to fail and did has passed."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"
    ERROR = "error"
    """It could not be run to its assertions, such as for an import that fails."""


_BADNESS = {kind: number for number, kind in enumerate(Outcome)}


class Unreadable(ValueError):
    """The bytes are not a report of this kind; the message says why."""


def worst(found: Iterable[tuple[str, Outcome]]) -> Mapping[str, Outcome]:
    """Return each test's outcome; one that was reported several times has the worst, so that no second report helps."""
    outcomes: dict[str, Outcome] = {}
    for test, outcome in found:
        before = outcomes.get(test, outcome)
        outcomes[test] = max(before, outcome, key=_BADNESS.__getitem__)
    return outcomes
