"""pytest's output: the short test summary (`-ra`, `-rA`) and the lines of `-v`.

Ids are pytest's own: `folder/test_file.py::Class::test[parameter]`. Skipped tests have no id in the summary (only `-v`
names them), so they are simply missing there. A run of `-v` without its last line (`2 passed in 0.1s`) was ended from
within: the test that it was at, or else `pytest`, is an error.
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
_RULE = re.compile(r"^=+ .* =+$|^\d+ (?:passed|failed|errors?|skipped)\b.* in [\d.]+s")
_SHORT = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) (.+)$")
_BEGUN = re.compile(r"^(\S+::\S.*?) *$")
_CLOSED = re.compile(r"^(?:=+ )?(?:\d+ [a-z]+,? )+in [\d.]+ ?s")
_VERBOSE = re.compile(r"^(\S+::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?: \(.*\))?\s+\[\s*\d+%\]$")


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
            yield _without_reason(match[2]), _WORDS[match[1]]
        elif match := _VERBOSE.match(line):
            yield match[1], _WORDS[match[2]]
            at = "pytest"
        elif at and (match := _BEGUN.match(line)):
            at = match[1]
    if at:
        yield at, Outcome.ERROR


def _without_reason(rest: str) -> str:
    """Cut ` - reason` off, but not what looks like it inside a test's parameters."""
    at = rest.find(" - ")
    while at != -1:
        if rest[:at].count("[") <= rest[:at].count("]"):
            return rest[:at]
        at = rest.find(" - ", at + 1)
    return rest
