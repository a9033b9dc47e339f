"""Comparisons of hidden tests made outside of the interpreter that runs the project: what is equal, what only says so."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from random import Random

import pytest

from rock_env.env import Verdict
from rock_env.sandbox import ExecResult
from sandboxes.swe.canaries import make_canaries
from sandboxes.swe.data import SweTask
from sandboxes.swe.grade import _ENV, _RUNNER, _project, _Run
from sandboxes.swe.values import Claims, judge, taken_out

HIDDEN = b"""
import unittest

import pytest

from shop import made, price


class TestPrices:
    @pytest.mark.parametrize("count, cents", [(1, 3), (2, 6)])
    def test_cases(self, count, cents):
        assert price(count) == cents

    def test_some(self):
        assert price(3) == 9 and 12 == price(4)
        for count in range(2):
            assert price(count) == count * 3

    def test_more(self):
        assert made([1]) == {"some": [3.5, ("a", None)], "more": {1, 2}}
        assert price(1) == pytest.approx(3)
        with pytest.raises(TypeError):
            price()


class TestUnit(unittest.TestCase):
    def test_unit(self):
        self.assertEqual(price(5), 15)
"""
RIGHT = """
def price(count):
    return 3 * count

def made(_):
    return {"some": [3.5, ("a", None)], "more": {2, 1}}
"""
WRONG = RIGHT.replace("3 * count", "4 * count")
KINDS = """
class Kind(int):
    def __eq__(self, other):
        return True
    __hash__ = int.__hash__
_price = price
def price(count):
    return Kind(_price(count))
"""
FRAMES = """
import sys
_price = price
def price(count):
    code, names = sys._getframe(1).f_code, sys._getframe(1).f_locals
    for each in (names.get("cents"), *code.co_consts):
        if each == 3 * count:
            return each
    return _price(count)
"""
CASES = {
    "right": (RIGHT, True),
    "right, of a kind of its own": (RIGHT + KINDS.replace("return True", "return int(self) == other"), True),
    "right, in an ordered dictionary": (
        RIGHT + "import collections\n_made = made\ndef made(x): return collections.OrderedDict(_made(x))\n",
        True,
    ),
    "wrong": (WRONG, False),
    "wrong, of a kind that equals all": (WRONG + KINDS, False),
    "wrong, no int but equal to all": (
        WRONG + KINDS.replace("(int)", "").replace("Kind(_price(count))", "Kind()"),
        False,
    ),
    "wrong, but what the caller's code holds": (WRONG + FRAMES, False),
}


def run(code: str, folder: Path) -> tuple[_Run, Verdict]:
    tests = (
        "TestPrices::test_cases",
        "TestPrices::test_some",
        "TestPrices::test_more",
        "TestUnit::test_unit",
    )
    task = SweTask(
        key="shop",
        name="stand",
        report="",
        repo=(("shop/__init__.py", code.encode()),),
        hidden=(("test_hidden.py", HIDDEN),),
        fail_to_pass=tuple(f"test_hidden.py::{test}" for test in tests),
        pass_to_pass=(),
        solution=(),
    )
    made = _Run(task, make_canaries(task.hidden, "shop", Random(1)))
    with tarfile.open(fileobj=io.BytesIO(_project(task, made.program, made.script(_RUNNER)))) as project:
        project.extractall(folder, filter="data")
    done = subprocess.run(
        [sys.executable, made.program],
        cwd=folder,
        env={**os.environ, **_ENV},
        capture_output=True,
        check=False,
    )
    ended = ExecResult(done.returncode, None, done.stdout, done.stderr, 1.0)
    return made, made.verdict(ended)


@pytest.mark.parametrize("name", CASES)
def test_only_the_right_values_pass(tmp_path: Path, name: str) -> None:
    code, passes = CASES[name]
    _, verdict = run(code, tmp_path)
    assert verdict.passed is passes, verdict


def test_no_expected_value_is_in_what_enters_the_box() -> None:
    claims = Claims()
    ((_, content),) = taken_out((("test_hidden.py", HIDDEN),), "values", claims)
    text = content.decode()
    for gone in ("'some'", "15", "(2, 6)", "9", "12"):
        assert gone not in text
    assert "values_same(5, price(1), pytest.approx(3))" in text
    assert "(2, 1)" in text, "numbers of the rows"
    assert claims.left == 0, "raises is no comparison, and no assertion either"


def test_the_names_of_wanted_cases_stay() -> None:
    claims = Claims()
    wanted = ["test_hidden.py::TestPrices::test_cases[2-6]"]
    ((_, content),) = taken_out((("test_hidden.py", HIDDEN),), "values", claims, wanted)
    assert "(2, 6)" in content.decode()


@pytest.mark.parametrize(
    ("said", "right"),
    [
        (['0 [["i","3"]]'], True),
        (['0 [["i","3"]]', '0 [["i","4"]]'], False),
        (['0 [["f","3.0"]]'], True),
        (['0 [["B",1]]'], False),
        (["0 []"], False),
        ([], False),
        (['1 [["i","3"]]'], False),
        (['0 [["i","3"],["i","3"]]'], False),
        (["0 nonsense"], False),
        (['0 [["d",[[["l",[]],["n",0]]]]]'], False),
        (["0 " + "[" * 100_000], False),
    ],
)
def test_what_a_box_says_is_not_trusted(said: list[str], right: bool) -> None:
    claims = Claims()
    taken_out((("t.py", b"def test_a():\n    assert f() == 3\n"),), "values", claims)
    assert judge(claims, "t.py::test_a", said) is right
