"""What is asked of an image for a verifier, and when the seal of a run is broken: pure parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rock_env.grading.guard import Guard, programs
from rock_env.grading.image import imports_of
from rock_env.grading.model import TaskFile, Verifier
from rock_env.grading.outcomes import Outcome
from rock_env.grading.parsers import Read
from rock_env.grading.seal import broken_seal
from rock_env.sandbox import ExecResult

SCRIPT = b"#!/bin/bash\ncd /app\nif make -s build && diff a.txt /tests/b.txt; then echo 1 > /logs/verifier/reward.txt; fi\n"
TEST = b"import os, attr as a\nfrom numpy.linalg import norm\nfrom . import near\n    import sqlite3\n"
VERIFIER = Verifier(
    ("/tests/test.sh",),
    "reward_file",
    files=(TaskFile("/tests/test.sh", SCRIPT, 0o755), TaskFile("/tests/test_a.py", TEST)),
    report="/logs/verifier",
)
BEFORE = {"/tests/test.sh": "1", "/usr/bin/diff": "2"}


def test_the_imports_of_a_verifier_are_those_of_its_files() -> None:
    assert {"os", "attr", "numpy", "sqlite3"} <= {*imports_of(VERIFIER)}
    assert "norm" not in imports_of(VERIFIER)


def test_programs_are_the_words_of_its_scripts() -> None:
    assert {"make", "diff", "echo"} <= {*programs(VERIFIER)}


def test_a_seal_holds_where_nothing_that_judges_was_changed() -> None:
    assert broken_seal(BEFORE, BEFORE, VERIFIER) == ""
    assert broken_seal(BEFORE, {**BEFORE, "/tests/result.json": "9"}, VERIFIER) == ""


def test_a_seal_is_broken_by_a_change_a_removal_and_what_would_be_loaded() -> None:
    assert broken_seal(BEFORE, {**BEFORE, "/usr/bin/diff": "3"}, VERIFIER) == "/usr/bin/diff"
    assert broken_seal(BEFORE, {"/usr/bin/diff": "2"}, VERIFIER) == "/tests/test.sh"
    for path in ("/tests/conftest.py", "/tests/sqlite3.py", "/etc/ld.so.preload"):
        assert broken_seal(BEFORE, {**BEFORE, path: "9"}, VERIFIER) == path


class Reported:
    """A box in which the guard told this of runs of tests."""

    def __init__(self, *lines: str) -> None:
        self._said = "".join(f"{line}\n" for line in lines).encode()

    async def read_range(self, path: str, *, offset: int, length: int) -> bytes:
        return self._said

    async def exec(self, argv: list[str], **_: Any) -> ExecResult:
        return ExecResult(0, None, b"", b"", 0.0)


TWO = Read({"a::one": Outcome.PASSED, "a::two": Outcome.PASSED, "a::three": Outcome.FAILED})


@pytest.mark.parametrize(
    ("parser", "read", "lines", "problem"),
    [
        ("pytest", TWO, ["token 1 2 -m pytest"], ""),
        ("pytest", TWO, ["token 0 1 a", "token 0 1 b"], ""),
        ("pytest", TWO, ["token 0 1 a", "token 0 1 a"], ""),
        ("pytest", TWO, ["token 1 1 a", "other 0 9 b"], "its output says that 2 tests passed, and 1 did"),
        ("unittest", TWO, ["token 2 0 a"], "its output says that 2 tests passed, and 0 did"),
        ("pytest", TWO, [], ""),
        ("go", TWO, ["token 0 1 a"], ""),
        ("reward_file", Read(reward=1.0), ["token 1 9 a"], "exit code 1, and the reward was 1 all the same"),
        ("reward_file", Read(reward=1.0), ["token 1 9 a", "token 0 9 a"], ""),
    ],
)
async def test_an_output_says_no_more_than_the_guard_saw(
    parser: str, read: Read, lines: list[str], problem: str
) -> None:
    guard = Guard(replace(VERIFIER, parser=parser), {}, sealed={}, report="/tmp/x", token="token")
    said = await guard.contradicts(Reported(*lines), read)  # type: ignore[arg-type]
    assert (problem in said) if problem else said == ""
