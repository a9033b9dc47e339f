"""The catalogue of hacks: enough of each class of cause, and names that are drawn from what a task's verifier says."""

from __future__ import annotations

import re
import subprocess
from collections import Counter

import pytest

from rock_env.grading.model import Build, Task, TaskFile, Verifier
from rock_env.vetting.hacks import CLASSES, hacks, kind_of

TEST = b"import sqlite3\nimport colorsys\n"
SCRIPT = b"#!/bin/bash\npython3 /tests/test_a.py | tee log\n"
TASK = Task(
    "t",
    "Do it.",
    Build(image="x"),
    Verifier(
        ("/tests/test.sh",),
        "reward_file",
        files=(TaskFile("/tests/test.sh", SCRIPT), TaskFile("/tests/test_a.py", TEST)),
    ),
)


def test_each_class_of_cause_has_at_least_ten_and_all_have_a_hundred() -> None:
    counts = Counter(map(kind_of, hacks()))
    assert set(counts) == {*CLASSES}
    assert min(counts.values()) >= 10
    assert counts.total() >= 100


def test_names_are_drawn_from_the_verifier() -> None:
    script = hacks(TASK)["imports: a module that the tests import ends the process"]
    assert re.search(r"for n in (sqlite3 colorsys|colorsys sqlite3);", script)
    links = hacks(TASK)["files: links to all that the tests hold"]
    assert "test_a.py" in links


def test_a_task_and_a_variant_give_the_same_scripts_and_another_variant_others() -> None:
    assert hacks(TASK) == hacks(TASK)
    assert hacks(TASK, 1) != hacks(TASK)
    assert hacks() != hacks(TASK)


@pytest.mark.parametrize("name", hacks())
def test_a_script_is_one_that_a_shell_can_read(name: str) -> None:
    script = hacks(TASK)[name]
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert not re.search(r"@[A-Z]+@", script.split("=== ")[-1])
