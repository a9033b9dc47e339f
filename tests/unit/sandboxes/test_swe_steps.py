"""Hidden tests in two halves: no box learns what is expected, and the verdict is that of the tests as they are written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ale.env.environments import show_command
from rock_env.env import Verdict
from rock_env.errors import InfraError
from rock_env.sandbox import ExecResult
from sandboxes.swe import factory
from sandboxes.swe.data import Files
from sandboxes.swe.grade import _ENV, _RUNNER
from sandboxes.swe.stepped import SteppedRun
from sandboxes.swe.steps import Unsplittable, split

INDEX = factory.read_index()
TESTS = b"""
import pytest
from shop import Basket, OutOfStock, add, find, keep

ITEMS = [("pear", 3), ("fig", 4)]
FULL = Basket(ITEMS)

def test_sums():
    assert add(1, 2) == 3
    assert [add(n, n) for n in (1, 2)] == [2, 4]
    for one, both in ((10, 21), (20, 31)):
        assert add(one, 11) == both
    assert add(0.1, 0.2) == pytest.approx(0.3)

def test_kinds():
    assert find("fig") is True
    assert find("plum") is False
    assert find("") is None
    assert not find("plum")
    assert find("fig") and add(0, 1)
    assert add(1, 1) < add(2, 2)

def test_errors():
    with pytest.raises(ValueError, match="no number: x"):
        add("x", 1)
    for item in ("plum", "nut"):
        with pytest.raises(OutOfStock):
            FULL.take(item)
    with pytest.raises(LookupError):
        FULL.take("plum")

def test_objects():
    basket = Basket([])
    assert keep(basket) is basket
    assert basket.items == []
    basket.items.append("kiwi")
    assert "kiwi" in basket.items
    assert "fig" not in basket.items
    assert {"b": basket} == {"b": keep(basket)}

def test_arguments():
    given = [1]
    keep(given)
    assert given == [1]
    total = add(2, 3)
    total += 1
    assert total == 6
"""
SHOP = """
class OutOfStock(LookupError):
    pass
class Basket:
    def __init__(self, items):
        self.items = [name for name, _ in items]
    def take(self, name):
        if name not in self.items:
            raise OutOfStock(name)
def add(one, two):
    if isinstance(one, str):
        raise ValueError(f"no number: {one}")
    return one + two
def find(name):
    return name in ("fig", "pear") if name else None
def keep(thing):
    return thing
"""
NAMES = ("sums", "kinds", "errors", "objects", "arguments")
OTHERS = {
    "a subclass of int": (
        "return one + two",
        "return type('N', (int,), {})(one + two) if type(one) is int else one + two",
        "",
    ),
    "a subclass of list": (
        "[name for name, _ in items]",
        "type('L', (list,), {})(name for name, _ in items)",
        "",
    ),
    "a fraction": (
        "return one + two",
        "import fractions; return fractions.Fraction(one) + fractions.Fraction(two)",
        "",
    ),
    "a subclass of the error": ("raise OutOfStock(", "raise type('Gone', (OutOfStock,), {})(", ""),
    "an error defined elsewhere": (
        "class OutOfStock(LookupError):\n    pass",
        "from shop.errors import OutOfStock",
        "",
    ),
    "a wrong sum": ("return one + two", "return one - two", "sums kinds arguments"),
    "a text for a number": ("return one + two", "return str(one + two)", "sums arguments"),
    "1 for True": ('name in ("fig", "pear")', '1 if name in ("fig", "pear") else 0', "kinds"),
    "None for False": ('name in ("fig", "pear")', '(name in ("fig", "pear") or None)', "kinds"),
    "no error": ("raise OutOfStock(name)", "return None", "errors"),
    "another error": ("raise OutOfStock(", "raise TypeError(", "errors"),
    "an error above the wanted one": ("raise OutOfStock(", "raise LookupError(", "errors"),
    "another message": ("no number: {one}", "no number {one}", "errors"),
    "an error where none is wanted": ("return thing", "raise ValueError", "objects arguments"),
    "a copy": ("return thing", "import copy; return copy.copy(thing)", "objects"),
    "a changed argument": (
        "return thing",
        "isinstance(thing, list) and thing.append(2); return thing",
        "arguments",
    ),
    "equal to all": (
        "return one + two",
        "import unittest.mock; return unittest.mock.ANY",
        "sums kinds arguments",
    ),
    "an ended process": ("return one + two", "import os; os._exit(0)", "all"),
    "an error under another name": ("class OutOfStock(", "class SoldOut(", "errors"),
}


def played(folder: Path, run: SteppedRun, files: Files) -> Verdict:
    for path, content in (*files, (run.program, run.script(_RUNNER))):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    done = subprocess.run(
        [sys.executable, run.program], cwd=folder, env=_ENV, capture_output=True, check=False
    )
    return run.verdict(ExecResult(done.returncode, None, done.stdout, done.stderr, 1.0))


def shop(folder: Path, code: str) -> Verdict:
    run = SteppedRun(
        (("test_x.py", TESTS),), "stand", ["shop"], [f"test_x.py::test_{name}" for name in NAMES]
    )
    errors = b"class OutOfStock(LookupError):\n    pass\n"
    return played(folder, run, (("stand/shop/__init__.py", code.encode()), ("stand/shop/errors.py", errors)))


def test_the_right_package_passes(tmp_path: Path) -> None:
    assert shop(tmp_path, SHOP) == Verdict(1.0, passed=True, details="5 of 5 hidden tests passed")


@pytest.mark.parametrize("name", OTHERS)
def test_what_differs_fails_where_the_tests_say_so(tmp_path: Path, name: str) -> None:
    old, new, failed = OTHERS[name]
    assert SHOP.count(old) == 1
    verdict = shop(tmp_path, SHOP.replace(old, new))
    assert verdict.passed is not bool(failed)
    if failed == "all":
        assert "did not run to their end (exit code 0)" in verdict.details
    elif failed:
        wrong = [f"test_x.py::test_{each}" for each in failed.split()]
        assert verdict.details == f"{5 - len(wrong)} of 5 hidden tests passed; not: {', '.join(wrong)}"


def test_nothing_of_what_is_expected_enters_the_box() -> None:
    run = SteppedRun((("test_x.py", TESTS),), "stand", ["shop"], [])
    entered = re.sub(rb"'[0-9a-f]{32}'", b"", run.script(""))  # drawn: it holds any two digits now and then
    for expected in (
        b"21",
        b"31",
        b"0.3",
        b"raises",
        b"OutOfStock",
        b"assert",
        b"==",
        b"test_",
        b" is ",
        b"kiwi' in",
    ):
        assert expected not in entered
    assert b"add(10, 11)" in entered
    assert b"FULL.take('nut')" in entered, "a loop over what is refused looks like no loop"


@pytest.mark.parametrize(
    "statement",
    [
        "assert find('fig') or add(1, 1) == 2",
        "assert all(add(n, n) == 2 * n for n in (1, 2))",
        "assert (add(1, 1) == 2) is True",
        "if add(1, 1) == 2: keep(1)",
        "for n in keep([1]): assert n == 1",
        "with pytest.raises(ValueError) as caught: add('x', 1)",
        "with pytest.raises((ValueError, TypeError)): add('x', 1)",
        "with pytest.warns(UserWarning): add(1, 1)",
        "global x",
    ],
)
def test_what_would_tell_the_box_is_not_split(statement: str) -> None:
    with pytest.raises(Unsplittable):
        split(f"import pytest\nfrom shop import add, find, keep\ndef test_x():\n    {statement}\n".encode())


def test_a_run_that_never_began_is_nobodys_failure(tmp_path: Path) -> None:
    run = SteppedRun((("test_x.py", TESTS),), "stand", ["shop"], [])
    with pytest.raises(InfraError, match="does not start"):
        run.verdict(ExecResult(127, None, b"", b"no python", 0.1))
    with pytest.raises(InfraError, match="another module 'shop'"):
        run.verdict(
            ExecResult(1, None, f"{run._token} ready\n{run._token} elsewhere shop\n".encode(), b"", 0.1)
        )


FORGED = {
    "an infrastructure failure": ("elsewhere shop", "did not run to their end"),
    "a line that is none": ("value", "something else wrote"),
    "a long line": (f'value 1 ["s","{"x" * 9000}"]', "something else wrote"),
    "a kind of value": ('value 1 ["q",["1","0"]]', "something else wrote"),
    "a huge number": ('value 1 ["D","1e999999999"]', "of 5 hidden tests passed"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_report_is_a_failure_of_the_project_and_bounded(name: str) -> None:
    line, why = FORGED[name]
    wanted = [f"test_x.py::test_{each}" for each in NAMES]
    run = SteppedRun((("test_x.py", TESTS),), "stand", ["shop"], wanted)
    steps = (
        ["exceptions {}", "end"]
        if "elsewhere" in line
        else [line] * split(TESTS).count + ["exceptions {}", "end"]
    )
    told = ["ready", "found", *([line] if "elsewhere" in line else ["loaded"]), *steps]
    said = "".join(f"{run._token} {each}\n" for each in told).encode()
    verdict = run.verdict(ExecResult(run._exit_code, None, said, b"", 0.1))
    assert (verdict.reward, verdict.passed) == (0.0, False)
    assert why in verdict.details


def test_all_built_in_tasks_are_graded_by_values_as_the_readme_says() -> None:
    for package in INDEX.packages:
        for path, content in factory.package_files(package):
            if path.startswith("hidden/"):
                assert split(content).count
    assert all(factory.load(task.key).by_values for task in INDEX.tasks)
    (told,) = re.findall(
        r"(\d+) of (\d+) tasks are graded by values", (factory.PACKAGES.parent / "README.md").read_text()
    )
    assert told == (str(len(INDEX.tasks)),) * 2


def test_ale_env_show_prints_how_many_tasks_are_graded_by_values(capsys: pytest.CaptureFixture[str]) -> None:
    show_command("swe")
    said = " ".join(capsys.readouterr().out.split())
    by_values = sum(factory.load(task.key).by_values for task in INDEX.tasks)
    assert by_values >= 845
    assert f"{by_values} of {len(INDEX.tasks)} tasks are graded by values" in said


@pytest.mark.parametrize("planted", INDEX.tasks[::40], ids=lambda planted: planted.key)
def test_a_planted_bug_fails_the_tests_that_it_fails_in_pytest(tmp_path: Path, planted) -> None:  # type: ignore[no-untyped-def]
    task = factory.load(planted.key)
    wanted = (*task.fail_to_pass, *task.pass_to_pass)
    original = {
        path: content for path, content in factory.package_files(task.name) if not path.startswith("hidden/")
    }
    for name, repo, passes in (("bug", dict(task.repo), task.pass_to_pass), ("fix", original, wanted)):
        run = SteppedRun(task.hidden, task.name, [task.name], wanted)
        files = tuple((f"{task.name}/{path}", content) for path, content in repo.items())
        failed = f"; not: {', '.join(task.fail_to_pass)}" if passes != wanted else ""
        assert (
            played(tmp_path / name, run, files).details
            == f"{len(passes)} of {len(wanted)} hidden tests passed{failed}"
        )
