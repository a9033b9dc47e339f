"""The output of `cargo test`. Ids are the tests' paths (`parser::tests::reads_empty`), those of doc tests the whole name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rock_env.grading.outcomes import Outcome, worst

__all__ = ["parse_cargo"]

_WORDS = {"ok": Outcome.PASSED, "FAILED": Outcome.FAILED, "ignored": Outcome.SKIPPED}
_BEGUN = re.compile(r"^test (.+?)(?: - should panic)? \.\.\. ?(.*)$")
_END = re.compile(r"(ok|FAILED|ignored)(?:, .*)?(?: <[\d.]+s>)?$")


def parse_cargo(text: str) -> Mapping[str, Outcome]:
    """Return each test's outcome; what a test printed may stand between its name and its end."""
    return worst(_found(text))


def _found(text: str) -> Iterator[tuple[str, Outcome]]:
    current = ""
    for line in text.splitlines():
        match = _BEGUN.match(line)
        if match:
            if current:
                yield current, Outcome.ERROR
            current, said = match[1], match[2]
        elif current and line.startswith("test result:"):
            yield current, Outcome.ERROR
            current = ""
        else:
            said = line
        if current and (end := _END.match(said)):
            yield current, _WORDS[end[1]]
            current = ""
    if current:
        yield current, Outcome.ERROR
