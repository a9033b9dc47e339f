"""The verbose text of jest and vitest, and the JSON that both write (`--json`, `--reporter=json`).

Ids are the titles from the outside in, joined by ` > `, alike in all forms and without the file, whose path depends on
where the run was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rock_env.grading.outcomes import Outcome, Unreadable, worst

__all__ = ["parse_jest", "parse_jest_json"]

_MARKS = {
    **dict.fromkeys("✓✔√", Outcome.PASSED),
    **dict.fromkeys("✕✗×✖❌", Outcome.FAILED),
    **dict.fromkeys("○↓⏭✎", Outcome.SKIPPED),
}
_TEST = re.compile(rf"^(\s+)([{''.join(_MARKS)}]) (.+?)(?: \(?[\d.]+ ?m?s\)?)?(?: \[skipped\])?$")
_SUITE = re.compile(r"^(?:PASS|FAIL) +\S+")
_BROKEN = re.compile(r"^\s+● Test suite failed to run$")
_TITLE = re.compile(r"^(\s+)(\S.*)$")
_FILE = re.compile(r"^(?:\|\S+\| )?\S+\.(?:test|spec)\.[cm]?[jt]sx?$")
_STATES = {
    "passed": Outcome.PASSED,
    "failed": Outcome.FAILED,
    **dict.fromkeys(("pending", "skipped", "todo", "disabled"), Outcome.SKIPPED),
}


def parse_jest(text: str) -> Mapping[str, Outcome]:
    """Return each test's outcome. A file that could not be run is an error under its `FAIL` line's path."""
    return worst(_text(text))


def _text(text: str) -> Iterator[tuple[str, Outcome]]:
    suite, above = "", list[tuple[int, str]]()
    for line in text.splitlines():
        if _SUITE.match(line):
            suite, above = line.split()[1], []
        elif _BROKEN.match(line):
            yield suite, Outcome.ERROR
        elif match := _TEST.match(line):
            depth, title = len(match[1]), match[3].removeprefix("skipped ").removeprefix("todo ")
            parts = title.split(" > ")
            if _FILE.match(parts[0]) and len(parts) > 1:  # vitest names the whole way
                yield " > ".join(parts[1:]), _MARKS[match[2]]
            else:
                outer = [name for at, name in above if at < depth]
                yield " > ".join([*outer, title]), _MARKS[match[2]]
        elif match := _TITLE.match(line):
            depth = len(match[1])
            above = [(at, name) for at, name in above if at < depth] + [(depth, match[2])]
        else:
            above = []


def parse_jest_json(text: str) -> Mapping[str, Outcome]:
    """Return what the report says. Raise `Unreadable` for what is no such report."""
    start = text.find('{"numFailedTestSuites"')
    try:
        report = json.loads(text if start < 0 else text[start:].strip().splitlines()[0])
        found = list(_results(report["testResults"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(
            f"it is no JSON report of jest or vitest ({type(error).__name__}: {error})"
        ) from None
    return worst(found)


def _results(suites: list[dict[str, Any]]) -> Iterator[tuple[str, Outcome]]:
    for suite in suites:
        tests = suite["assertionResults"]
        if not tests and suite.get("status") == "failed":
            yield str(suite.get("name", "")), Outcome.ERROR
        for test in tests:
            titles = [*test.get("ancestorTitles", []), test["title"]]
            yield " > ".join(map(str, titles)).strip(), _STATES.get(str(test["status"]), Outcome.ERROR)
