"""pytest's output: the short test summary (`-ra`, `-rA`) and the lines of `-v`.

Ids are pytest's own: `folder/test_file.py::Class::test[parameter]`. Skipped tests have no id in the summary (only `-v`
names them), so they are simply missing there. A failed subtest fails its test, as pytest 9 and pytest-subtests write it.
A run of `-v` without its last line (`2 passed in 0.1s`) was ended from within: the test that it was at, or else `pytest`,
is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

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
_BEGUN = re.compile(r"^\S+?::\S")
_CLOSED = re.compile(r"^(?:=+ )?(?:\d+ (?:subtests )?[a-z]+,? )+in [\d.]+ ?s")
_SHARE = re.compile(r"\s*\d+%\]")
_WORD = re.compile(r" (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?=$| \()")
_SUBTEST = re.compile(r" SUB(?:(FAIL)|PASS|SKIP)(?:(?:ED|PED)(?=$|[\[( ])|$| \()")
_SUBTEST_FAILED = re.compile(r"^(?:SUBFAILED\b.*?|.*? SUBFAIL) (\S+?::.+)$")


def parse_pytest(text: str) -> Mapping[str, Outcome]:
    """Return what the summaries and the verbose lines say. Lines elsewhere, such as captured output, say nothing."""
    subtests: list[list[str]] = []
    found = list(_found(text, subtests))
    return worst([*found, *_of_subtests(subtests, {test for test, _ in found})])


def _found(text: str, subtests: list[list[str]]) -> Iterator[tuple[str, Outcome]]:
    """Yield what the lines say of tests; put aside a summary's on failed subtests, which may go on in the next line."""
    in_summary, goes_on, at = False, False, ""
    for line in text.splitlines():
        if _CLOSED.match(line):
            in_summary, at = False, ""
        elif _SUMMARY.match(line):
            in_summary, goes_on = True, False
        elif in_summary and _RULE.match(line):
            in_summary = False
        elif in_summary and (match := _SHORT.match(line)):
            yield _until(match[2], " - "), _WORDS[match[1]]
            goes_on = False
        elif in_summary and (line.startswith("SUBFAILED") or _SUBTEST_FAILED.match(line)):
            subtests.append([line])
            goes_on = True
        elif in_summary and goes_on:
            subtests[-1].append(line)
        elif said := _verbose(line):
            test, outcome, at = said
            if outcome is not None:
                yield test, outcome
        elif at and _BEGUN.match(line):
            at = line.rstrip(" ")
    if at:
        yield at, Outcome.ERROR


def _verbose(line: str) -> tuple[str, Outcome | None, str] | None:
    """Return the test of a line of `-v`, what is said of it, and where the run is now: at this test, or behind it."""
    body, _, share = line.rpartition("[")
    text = body.rstrip()
    if text == body or not _SHARE.fullmatch(share) or not _BEGUN.match(text):
        return None
    closed = text.endswith(")")
    word = next((found for found in _WORD.finditer(text) if closed or found.end() == len(text)), None)
    subtest = _SUBTEST.search(text, endpos=word.start() + 1 if word else len(text))
    before = text[: subtest.start()] if subtest else ""
    if subtest and before.count("[") <= before.count("]"):  # else it is in the test's parameters
        test = _until(before, " [", " (")
        return test, Outcome.FAILED if subtest[1] else None, test
    return (text[: word.start()], _WORDS[word[1]], "pytest") if word else None


def _of_subtests(entries: Sequence[Sequence[str]], tests: Iterable[str]) -> Iterator[tuple[str, Outcome]]:
    """Yield the tests that a summary's entries on failed subtests name.

    A description or a message before or behind the name can look like one: every one of `tests` counts, so that none hides
    behind another, else what comes first. An entry that names none is an error of `pytest`.
    """
    heads: dict[str, list[str]] = {}
    for test in tests:
        heads.setdefault(test.partition(" ")[0], []).append(test)
    for entry in entries:
        known = [test for line in entry for test in _named(line, heads)]
        for test in known:
            yield test, Outcome.FAILED
        if not known:
            match = _SUBTEST_FAILED.match(entry[0])
            yield (_until(match[1], " - "), Outcome.FAILED) if match else ("pytest", Outcome.ERROR)


def _named(line: str, heads: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the tests that stand in a line before a reason or its end; `heads` has them by their first word."""
    at = 0
    for word in line.split(" "):
        for test in heads.get(word, ()):
            end = at + len(test)
            if line.startswith(test, at) and (end == len(line) or line.startswith(" - ", end)):
                yield test
        at += len(word) + 1


def _until(rest: str, *marks: str) -> str:
    """Cut a reason or a subtest's description off, but not what looks like it inside a test's parameters."""
    depth = 0
    for found in re.finditer("|".join(map(re.escape, (*marks, "[", "]"))), rest):
        if found[0] in marks and depth <= 0:
            return rest[: found.start()]
        depth += found[0].count("[") - found[0].count("]")
    return rest
