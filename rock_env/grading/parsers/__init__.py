"""What a verifier's run left, read into outcomes per test or a reward: pure functions, one file for each kind of report.

Used by `rock_env.grading.verifier`, which also fetches the reports. Nothing that is read is trusted: a parser bounds
what it reads, takes the worst of several reports of one test, and raises `Unreadable` rather than guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rock_env.grading.outcomes import Outcome, Unreadable
from rock_env.grading.parsers.cargo import parse_cargo
from rock_env.grading.parsers.go import parse_go, parse_go_json
from rock_env.grading.parsers.jest import parse_jest, parse_jest_json
from rock_env.grading.parsers.junit import parse_junit
from rock_env.grading.parsers.pytest_text import parse_pytest
from rock_env.grading.parsers.reward_file import parse_reward
from rock_env.grading.parsers.swebench_text import parse_swebench
from rock_env.grading.parsers.unittest_text import described, parse_unittest

__all__ = ["EXIT_CODE", "PARSERS", "Left", "Parser", "Read"]

EXIT_CODE = "exit code"
"""The one test that the parser `exit_code` reports."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Left:
    """What a run left behind."""

    exit_code: int | None = 0
    """None if a signal ended it."""
    stdout: bytes = b""
    stderr: bytes = b""
    reports: Mapping[str, bytes] | None = None
    """Files by name, where the verifier names a report; empty if there was none. None: the output is the report."""

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.stdout) + len(self.stderr) + sum(map(len, (self.reports or {}).values()))

    @property
    def text(self) -> str:
        """Return both outputs without colours; what is not UTF-8 is replaced."""
        return _COLOUR.sub(
            "", "\n".join(part.decode(errors="replace") for part in (self.stdout, self.stderr))
        )

    def texts(self) -> list[str]:
        """Return what is to be read: the reports, else the output."""
        if self.reports is None:
            return [self.text]
        return [
            _COLOUR.sub("", content.decode(errors="replace")) for _, content in sorted(self.reports.items())
        ]


@dataclass(frozen=True, slots=True)
class Read:
    """What a parser found: outcomes, or a reward that the verifier gave itself."""

    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    reward: float | None = None
    described: Mapping[str, Outcome] = field(default_factory=dict)
    """The same tests by their docstrings, where the runner prints them."""


Parser = Callable[[Left], Read]
"""Raises `Unreadable`."""


def _of_text(parse: Callable[[str], Mapping[str, Outcome]]) -> Parser:
    return lambda left: Read(parse("\n".join(left.texts())))


def _of_json(parse: Callable[[str], Mapping[str, Outcome]]) -> Parser:
    def read(left: Left) -> Read:
        texts = left.texts() if left.reports is not None else [left.stdout.decode(errors="replace")]
        if not texts:
            raise Unreadable("there is no report")
        return Read({test: outcome for text in texts for test, outcome in parse(text).items()})

    return read


def _junit(left: Left) -> Read:
    if left.reports is None:
        return Read(parse_junit([left.stdout]))
    return Read(parse_junit([content for _, content in sorted(left.reports.items())]))


def _reward(left: Left) -> Read:
    return Read(reward=parse_reward(left.reports or {}))


def _exit_code(left: Left) -> Read:
    return Read({EXIT_CODE: Outcome.PASSED if left.exit_code == 0 else Outcome.FAILED})


def _unittest(left: Left) -> Read:
    text = "\n".join(left.texts())
    return Read(parse_unittest(text), described=described(text))


PARSERS: Mapping[str, Parser] = {
    "cargo": _of_text(parse_cargo),
    "exit_code": _exit_code,
    "go": _of_text(parse_go),
    "go_json": _of_text(parse_go_json),
    "jest": _of_text(parse_jest),
    "jest_json": _of_json(parse_jest_json),
    "junit": _junit,
    "pytest": _of_text(parse_pytest),
    "reward_file": _reward,
    "swebench": _of_text(parse_swebench),
    "unittest": _unittest,
    "vitest": _of_text(parse_jest),
    "vitest_json": _of_json(parse_jest_json),
}
"""By the name that a `Verifier` gives."""
