"""The swe grade without a box: canaries that are what they say, and runs that are believed only when they are whole."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from rock_env.env import Verdict
from rock_env.errors import InfraError
from rock_env.sandbox import ExecResult
from sandboxes.swe import handmade
from sandboxes.swe.canaries import Canaries, make_canaries
from sandboxes.swe.data import SweTask
from sandboxes.swe.grade import _Run, packages_of

HIDDEN = b"""
import pytest
import unittest

def double(x): return x * 2

@pytest.mark.parametrize("x, y", [(1, 2), (2, 4)])
def test_cases(x, y):
    assert double(x) == y

def test_plain(tmp_path):
    value = double(2)
    assert value == 4
    assert value

@pytest.mark.skip
def test_marked():
    assert 1 == 1

def test_without_equality():
    assert double(1)

class TestUnit(unittest.TestCase):
    def test_method(self):
        self.assertEqual(double(1), 2)
"""


def outcomes(folder: Path, canaries: Canaries) -> dict[str, str]:
    """Run the files with pytest as it is, and return its words by test."""
    for path, content in canaries.files:
        (folder / path).write_bytes(content)
    paths = [path for path, _ in canaries.files]
    argv = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:randomly", "--color=no"]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([*argv, *paths], cwd=folder, env=env, capture_output=True, text=True, check=False)
    return dict(re.findall(r"^(\S+) (PASSED|FAILED|SKIPPED|ERROR)\b", done.stdout, re.MULTILINE))


def test_canaries_fail_and_pass_as_they_say(tmp_path: Path) -> None:
    canaries = make_canaries((("test_hidden.py", HIDDEN),), "json", Random(3))
    found = outcomes(tmp_path, canaries)
    assert [path for path, _ in canaries.files].index("test_hidden.py") == 1, (
        "before and after the hidden ones"
    )
    twins = {test for test in canaries.must_fail if test.startswith("test_hidden.py::")}
    assert len(twins) == 2, "of the test with cases and of the plain one"
    ends = {test.partition("[")[0]: word for test, word in found.items()}
    assert {ends[test] for test in canaries.must_fail} == {"FAILED"}
    assert {ends[test] for test in canaries.must_pass} == {"PASSED"}
    assert len(canaries.must_fail) == 2 + 2 * 5
    hidden = {test: word for test, word in found.items() if test.startswith("test_hidden.py::")}
    assert [hidden[f"test_hidden.py::test_cases[{case}]"] for case in ("1-2", "2-4")] == ["PASSED"] * 2
    assert hidden["test_hidden.py::TestUnit::test_method"] == "PASSED"


def test_no_two_grades_have_the_same_canaries() -> None:
    made = {
        make_canaries((("test_hidden.py", HIDDEN),), "json", Random(seed)).must_fail for seed in range(20)
    }
    assert len(made) == 20


def task() -> SweTask:
    return handmade.load("tabsplit")


def ran(run: _Run, *lines: str, code: int | None = None, **fields: object) -> Verdict:
    """Judge a run that said these lines; `*` stands for the outcomes of an honest run in which all passed."""
    honest = [f"passed {test}" for test in (*task().fail_to_pass, *task().pass_to_pass)]
    honest += [f"failed {test}" for test in sorted(run._canaries.must_fail)]
    honest += [f"passed {test}" for test in sorted(run._canaries.must_pass)]
    said = [text for line in lines for text in (honest if line == "*" else [line])]
    stdout = "".join(
        f"{line[1:]}\n" if line.startswith("!") else f"{run._token} {line}\n" for line in said
    ).encode()
    exit_code = run._exit_code if code is None else code
    values = {"exit_code": exit_code, "signal": None, "stdout": stdout, "stderr": b"", "duration_s": 1.0}
    return run.verdict(ExecResult(**{**values, **fields}))  # type: ignore[arg-type]


@pytest.fixture
def run() -> _Run:
    return _Run(task(), make_canaries(task().hidden, packages_of(task())[0], Random(1)))


def test_a_whole_run_is_believed(run: _Run) -> None:
    assert ran(run, "ready", "*", "end 1") == Verdict(1.0, passed=True, details="9 of 9 hidden tests passed")


ODD = {
    "no end": (("ready", "*"), "did not run to their end"),
    "another end": (("ready", "*", "end 0"), "did not run to their end"),
    "more after the end": (("ready", "*", "end 1", "passed x"), "did not run to their end"),
    "a forged line": (("ready", "*", "!passed x", "end 1"), "something else wrote"),
    "said twice": (("ready", "*", "*", "end 1"), "reported twice"),
    "a changed runner": (
        ("ready", "*", "changed pytest.raises", "end 1"),
        "the project changed pytest.raises",
    ),
    "a broken import": (("ready", "broken test_split.py", "*", "end 1"), "cannot be imported"),
    "an infrastructure failure that is forged": (
        ("ready", "found", "elsewhere x"),
        "did not run to their end",
    ),
    "nothing": (("ready", "end 1"), "a test that cannot pass did not fail"),
}


@pytest.mark.parametrize("name", ODD)
def test_a_run_that_is_odd_is_a_failure(run: _Run, name: str) -> None:
    lines, why = ODD[name]
    verdict = ran(run, *lines)
    assert (verdict.reward, verdict.passed) == (0.0, False)
    assert why in verdict.details


def test_exit_codes_time_and_truncation_count(run: _Run) -> None:
    assert not ran(run, "ready", "*", "end 1", code=0).passed
    assert not ran(run, "ready", "*", "end 1", truncated=True).passed
    assert "within 120 s" in ran(run, "ready", timed_out=True).details
    assert "signal 24" in ran(run, "ready", exit_code=None, signal=24).details


def test_each_canary_counts(run: _Run) -> None:
    words = dict.fromkeys((*task().fail_to_pass, *task().pass_to_pass, *run._canaries.must_pass), "passed")
    words |= dict.fromkeys(run._canaries.must_fail, "failed")
    assert ran(run, "ready", *(f"{word} {test}" for test, word in words.items()), "end 1").passed
    for canary in run._canaries.must_fail | run._canaries.must_pass:
        for other in {"passed", "failed", "skipped"} - {words[canary]}:
            lines = [f"{word} {test}" for test, word in {**words, canary: other}.items()]
            assert not ran(run, "ready", *lines, "end 1").passed
            lines = [f"{word} {test}" for test, word in words.items() if test != canary]
            assert not ran(run, "ready", *lines, "end 1").passed


def test_a_run_that_never_began_is_nobodys_failure(run: _Run) -> None:
    with pytest.raises(InfraError, match=r"No module named 'pytest'.*pip install pytest"):
        ran(run, stderr=b"ModuleNotFoundError: No module named 'pytest'", code=1)
    with pytest.raises(InfraError, match="does not start"):
        ran(run, timed_out=True, exit_code=None, signal=9)
    with pytest.raises(InfraError, match="another module 'tabsplit'"):
        ran(run, "ready", "elsewhere tabsplit")
    with pytest.raises(InfraError, match="the machine is gone"):
        ran(run, "ready", infra_error="the machine is gone")


def test_packages_are_what_can_be_imported() -> None:
    for name in ("keepsake", "runorder", "tabsplit"):
        assert packages_of(handmade.load(name)) == (name,)
