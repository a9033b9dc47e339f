"""pytest's output: the short test summary (`-ra`, `-rA`) and the lines of `-v`.

Ids are pytest's own: `folder/test_file.py::Class::test[parameter]`. Skipped tests have no id in the summary (only `-v`
names them), so they are simply missing there. A failed subtest fails its test, as pytest 9 and pytest-subtests write it.
A run of `-v` without its last line (`2 passed in 0.1s`) was ended from within: the test that it was at, or else `pytest`,
is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rock_env.grading.outcomes import Outcome, worst

__all__ = ["parse_pytest"]

_WORDS = {
    "PASSED": Outcome.PASSED,
    "XFAIL": Outcome.PASSED,
    "XPASS": Outcome.PASSED,
    "SKIPPED": Outcome.SKIPPED,
    "FAILED": Outcome.FAILED,
    "ERROR": Outcome.ERROR,
}
_SUMMARY = re.compile(r"^=+ short test summary info =+$")
_RULE = re.compile(r"^=+ .* =+$")
_SHORT = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) (.+)$")
_BEGUN = re.compile(r"^(\S+::\S.*?) *$")
_CLOSED = re.compile(r"^(?:=+ )?(?:\d+ (?:subtests )?[a-z]+,? )+in [\d.]+ ?s")
_VERBOSE = re.compile(r"^(\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: \(.*\))?\s+\[\s*\d+%\]$")
_SUBTEST = re.compile(r"^(\S+::.+?) SUB(?:(FAIL)|PASS|SKIP).*\[\s*\d+%\]$")
_SUBTEST_FAILED = re.compile(r"^(?:SUBFAILED.*?|.* SUBFAIL) (\S+::.+)$")


def parse_pytest(text: str) -> Mapping[str, Outcome]:
    """Return what the summaries and the verbose lines say. Lines elsewhere, such as captured output, say nothing."""
    return worst(_found(text))


def _found(text: str) -> Iterator[tuple[str, Outcome]]:
    in_summary, at = False, ""
    for line in text.splitlines():
        if _CLOSED.match(line):
            in_summary, at = False, ""
        elif _SUMMARY.match(line):
            in_summary = True
        elif in_summary and _RULE.match(line):
            in_summary = False
        elif in_summary and (match := _SHORT.match(line)):
            yield _until(match[2], " - "), _WORDS[match[1]]
        elif in_summary and (match := _SUBTEST_FAILED.match(line)):
            yield _until(match[1], " - "), Outcome.FAILED
        elif match := _VERBOSE.match(line):
            yield match[1], _WORDS[match[2]]
            at = "pytest"
        elif match := _SUBTEST.match(line):
            at = _until(match[1], " [", " (")
            if match[2]:
                yield at, Outcome.FAILED
        elif at and (match := _BEGUN.match(line)):
            at = match[1]
    if at:
        yield at, Outcome.ERROR


def _until(rest: str, *marks: str) -> str:
    """Cut a reason or a subtest's description off, but not what looks like it inside a test's parameters."""
    for found in re.finditer("|".join(map(re.escape, marks)), rest):
        before = rest[: found.start()]
        if before.count("[") <= before.count("]"):
            return before
    return rest
