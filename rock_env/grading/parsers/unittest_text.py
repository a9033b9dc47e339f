"""The output of `python -m unittest -v`, as Django's runner gives it, too.

Ids are the text before ` ... `: `test_name (package.module.Class.test_name)`, or `test_name (package.module.Class)` as
Python wrote it before 3.11, which also goes on in the same line after a test whose subtests failed. A test's docstring,
printed on a line of its own, does not become part of the id; `described` has the tests by it. A run without its last words
(`Ran 2 tests in 0.1s`) was ended from within: the test that it was at, or else `unittest`, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rock_env.grading.outcomes import Outcome, worst

__all__ = ["described", "parse_unittest"]

_ID = r"\w+ \([\w.<>]+\)"
_STARTED = re.compile(rf"^({_ID})(?: \.\.\. ?(.*))?$")
_DESCRIBED = re.compile(r"^(.*) \.\.\. ?(.*)$")
_RUN_ON = re.compile(
    rf"^({_ID} \.\.\. |(?!{_ID} \.\.\.).*? \.\.\. )(?=test\w* \((?:\w+\.)+\w+\)(?: \.\.\.|$))"
)
_CLOSED = re.compile(r"^Ran \d+ tests? in [\d.]+s")
_BAD = re.compile(rf"^(FAIL|ERROR): ({_ID})")
_ENDS = (
    (re.compile(r"(?:^|[^\w])(?:ok|expected failure)$|^(?:ok|expected failure)$"), Outcome.PASSED),
    (re.compile(r"^skipped\b|\bskipped ['\"].*['\"]$"), Outcome.SKIPPED),
    (re.compile(r"\b(?:FAIL|unexpected success)$"), Outcome.FAILED),
    (re.compile(r"\bERROR$"), Outcome.ERROR),
)


def parse_unittest(text: str) -> Mapping[str, Outcome]:
    """Return each test's outcome; the details at the end (`FAIL: …`) count beside its line."""
    return worst((test, outcome) for test, _, outcome in _found(text))


def described(text: str) -> Mapping[str, Outcome]:
    """Return the outcomes by the last line of tests' docstrings, under which SWE-bench publishes some.

    Of tests with the same docstring, and of a test that is reported again at the end of the run, it is the worst.
    """
    found = list(_found(text))
    outcomes = worst((test, outcome) for test, _, outcome in found)
    return worst((docstring, outcomes[test]) for test, docstring, _ in found if docstring)


def _found(text: str) -> Iterator[tuple[str, str, Outcome]]:
    """Yield each report of a test: its id, the last line of its docstring if there is one, and the outcome."""
    current, docstring, ran = "", "", True
    for line in _lines(text):
        if _CLOSED.match(line):
            current, ran = "", True
        elif match := _BAD.match(line):
            yield match[2], "", Outcome.FAILED if match[1] == "FAIL" else Outcome.ERROR
            current = ""
        elif match := _STARTED.match(line):
            current, docstring, said, ran = match[1], "", match[2] or "", False
        elif current:  # its docstring, or what it printed before its end
            match = _DESCRIBED.match(line)
            docstring, said = (match[1], match[2]) if match else (docstring, line)
        if current and (outcome := _end(said)) is not None:
            yield current, docstring, outcome
            current = ""
    if not ran:
        yield current or "unittest", "", Outcome.ERROR


def _lines(text: str) -> Iterator[str]:
    """Yield the lines, cut where another test begins directly behind the ` ... ` of a test or of a docstring."""
    for line in text.splitlines():
        rest = line
        while match := _RUN_ON.match(rest):
            yield match[1]
            rest = rest[match.end() :]
        yield rest


def _end(said: str) -> Outcome | None:
    return next((outcome for pattern, outcome in _ENDS if pattern.search(said.rstrip())), None)
