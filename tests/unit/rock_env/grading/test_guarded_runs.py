"""What is asked of an image for a verifier, and when the seal of a run is broken: pure parts."""

from __future__ import annotations

from rock_env.grading.guard import programs
from rock_env.grading.image import imports_of
from rock_env.grading.model import TaskFile, Verifier
from rock_env.grading.seal import broken_seal

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
