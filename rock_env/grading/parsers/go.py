"""The output of `go test -v` and of `go test -json`.

Ids are the tests' names (`TestParse/empty`), alike in both forms and without the package, which the text form tells too
late; a package that fails without any test (it does not build) is an id of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from rock_env.grading.outcomes import Outcome, worst

__all__ = ["parse_go", "parse_go_json"]

_WORDS = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.SKIPPED}
_TEST = re.compile(r"^\s*--- (PASS|FAIL|SKIP): (\S+)(?: \([\d.]+s\))?$")
_PACKAGE = re.compile(r"^FAIL\s+(\S+)\s+\[(?:build failed|setup failed)\]$")
_RUN = re.compile(r"^=== RUN\s+(\S+)$")


def parse_go(text: str) -> Mapping[str, Outcome]:
    """Return each test's outcome. One that began and never ended, as in a panic, is an error."""
    return worst(_text(text))


def _text(text: str) -> Iterator[tuple[str, Outcome]]:
    begun: dict[str, bool] = {}
    for line in text.splitlines():
        if match := _RUN.match(line):
            begun.setdefault(match[1], False)
        elif match := _TEST.match(line):
            begun[match[2]] = True
            yield match[2], _WORDS[match[1].lower()]
        elif match := _PACKAGE.match(line):
            yield match[1], Outcome.ERROR
    for test, ended in begun.items():
        if not ended:
            yield test, Outcome.ERROR


def parse_go_json(text: str) -> Mapping[str, Outcome]:
    """Return what the events say; lines that are no events (compiler messages) say nothing."""
    return worst(_events(text))


def _events(text: str) -> Iterator[tuple[str, Outcome]]:
    begun: dict[tuple[str, str], bool] = {}
    with_tests: set[str] = set()
    for line in text.splitlines():
        event = _event(line)
        action, test = event.get("Action"), event.get("Test", "")
        package = event.get("Package", event.get("ImportPath", ""))
        if not (isinstance(test, str) and isinstance(package, str)):
            continue
        if test:
            with_tests.add(package)
            if action == "run":
                begun.setdefault((package, test), False)
            elif action in _WORDS:
                begun[package, test] = True
                yield test, _WORDS[action]
        elif action in ("fail", "build-fail") and package not in with_tests:
            yield package.partition(" ")[0], Outcome.ERROR
    for (_, test), ended in begun.items():
        if not ended:
            yield test, Outcome.ERROR


def _event(line: str) -> dict[str, object]:
    if not line.startswith("{"):
        return {}
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}
