"""The output of `python -m unittest -v`, as Django's runner gives it, too.

Ids are the text before ` ... `: `test_name (package.module.Class.test_name)`, or `test_name (package.module.Class)` as
Python wrote it before 3.11, which also goes on in the same line after a test whose subtests failed. A test's docstring,
printed on a line of its own, does not become part of the id. A run without its last words (`Ran 2 tests in 0.1s`) was ended
from within: the test that it was at, or else `unittest`, is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rock_env.grading.outcomes import Outcome, worst

__all__ = ["parse_unittest"]

_ID = r"\w+ \([\w.<>]+\)"
_STARTED = re.compile(rf"^({_ID})(?: \.\.\. ?(.*))?$")
_DESCRIBED = re.compile(r"^.* \.\.\. ?(.*)$")
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
    return worst(_found(text))


def _found(text: str) -> Iterator[tuple[str, Outcome]]:
    current, ran = "", True
    for line in _lines(text):
        if _CLOSED.match(line):
            current, ran = "", True
        elif match := _BAD.match(line):
            yield match[2], Outcome.FAILED if match[1] == "FAIL" else Outcome.ERROR
            current = ""
        elif match := _STARTED.match(line):
            current, said, ran = match[1], match[2] or "", False
        elif current:  # its docstring, or what it printed before its end
            match = _DESCRIBED.match(line)
            said = match[1] if match else line
        if current and (outcome := _end(said)) is not None:
            yield current, outcome
            current = ""
    if not ran:
        yield current or "unittest", Outcome.ERROR


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
