"""What each Python of a grade runs first, and what a clean box's Python tells of itself, in Pythons of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rock_env.guest_host.code import GUARD_SOURCES

ENDS = "import os\nos._exit(7)\n"
PROBE = GUARD_SOURCES[0].parent.with_name("image_probe.py")


def run(
    folder: Path, *argv: str, own: str | None = "/tests", **more: str
) -> subprocess.CompletedProcess[str]:
    guard = folder.parent / "guard"
    guard.mkdir(exist_ok=True)
    for source in GUARD_SOURCES:
        shutil.copy(source, guard)
    told = {} if own is None else {"ROCK_GUARD_OWN": own}
    env = {**os.environ, "PYTHONPATH": str(guard), "PYTHONDONTWRITEBYTECODE": "1", **told, **more}
    return subprocess.run(
        [sys.executable, *argv], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("asyncio", "sqlite3", "_csv"):
        (folder / f"{name}.py").write_text(ENDS)
    return folder


@pytest.mark.parametrize(
    "argv",
    [
        ("-c", "import asyncio, sqlite3, csv"),
        ("-Bc", "import asyncio"),
        ("-m", "pytest", "--version"),
        ("-mpytest", "--version"),
        ("-m", "unittest", "-h"),
    ],
)
def test_the_library_comes_before_the_work(work: Path, argv: tuple[str, ...]) -> None:
    assert run(work, *argv).returncode == 0


def test_without_being_told_nothing_is_changed(work: Path) -> None:
    assert run(work, "-c", "import asyncio", own=None).returncode == 7


def test_an_installed_tool_comes_before_the_work(work: Path) -> None:
    (work / "pytest.py").write_text(ENDS)
    assert run(work, "-m", "pytest", "--version", ROCK_GUARD_TOOLS="pytest:_pytest").returncode == 0


def test_a_verifier_s_file_finds_the_library_and_its_own_neighbours(work: Path, tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "grade.py").write_text(
        "import sys\nsys.path.insert(0, sys.argv[1])\nimport sqlite3, queue\nprint(queue.MINE)\n"
    )
    (tests / "queue.py").write_text("MINE = 3\n")
    done = run(work, str(tests / "grade.py"), str(work), own=f"queue:{tests}")
    assert (done.returncode, done.stdout) == (0, "3\n"), done


def test_a_program_of_the_work_keeps_its_neighbours(work: Path) -> None:
    (work / "main.py").write_text("import queue\nprint(queue.MINE)\n")
    (work / "queue.py").write_text("MINE = 3\n")
    assert run(work, "main.py").stdout == "3\n"
    assert run(work, "-m", "main").stdout == "3\n"
    assert run(work, "-c", "import queue; print(queue.MINE)", own="queue").stdout == "3\n", (
        "the task speaks of it"
    )


def test_the_image_s_own_first_code_runs_too(work: Path, tmp_path: Path) -> None:
    (tmp_path / "guard").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "sitecustomize.py").write_text("print('mine')\n")
    path = f"{tmp_path / 'guard'}:{tmp_path / 'other'}"
    assert run(work, "-c", "pass", PYTHONPATH=path).stdout == "mine\n"


CASES = """
import unittest
import mod


class TestIt(unittest.TestCase):
    def test_one(self):
        self.assertEqual(mod.value(), 1)
"""


IMPORTER = """
import sys, unittest
m = sys.modules["test_it"]
class Own(unittest.TestCase):
    def test_own(self): pass
"""
EXPECTING = """
build = __builtins__["__build_class__"]
def once(*parts, **named):
    made = build(*parts, **named)
    if made.__name__ == "TestIt":
        __builtins__["__build_class__"] = build
        made.test_one.__unittest_expecting_failure__ = True
    return made
__builtins__["__build_class__"] = once
"""


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("def value(): return 1", 0),
        ("def value(): return 2", 1),
        ("import os\nos._exit(0)", 71),
        ("import sys\nsys.exit(0)", 1),
        ("import os\ndef value(): os._exit(0)", 71),
        ("import unittest\nunittest.TestCase.run = lambda self, result=None: None\nvalue = None", 72),
        ("import unittest\nunittest.TestCase.assertEqual = lambda *a: None\nvalue = int", 72),
        ("import unittest\nunittest.TestResult.addFailure = lambda *a: None\nvalue = int", 72),
        ("class All:\n    def __eq__(self, other): return True\ndef value(): return All()", 72),
        ("class All:\n    def __ne__(self, other): return False\ndef value(): return All()", 72),
        ("from unittest.mock import ANY\ndef value(): return ANY", 72),
        ("import unittest\nraise unittest.SkipTest", 1),
        ("import unittest\ndef value(): raise unittest.SkipTest", 1),
        ("import unittest\ndef value(): raise unittest.case._ShouldStop", 72),
        ("import atexit, os\natexit.register(os._exit, 0)\nvalue = int", 1),
        (f"{IMPORTER}\ndef value(): return 2\n{EXPECTING}", 1),
        (f"{IMPORTER}\nm.load_tests = lambda loader, *_: loader.loadTestsFromTestCase(Own)", 1),
    ],
)
def test_a_run_of_unittest_is_watched(tmp_path: Path, module: str, code: int) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "mod.py").write_text(module)
    (folder / "test_it.py").write_text(CASES)
    report = tmp_path / "report"
    done = run(folder, "-m", "unittest", "-v", "test_it", ROCK_GUARD_REPORT=f"word:{report}")
    assert done.returncode == code, done
    passed = int(code == 0 or "load_tests" in module)
    assert report.read_text() == f"word {code} {passed} -v test_it\n"


SETS_UP = """
import unittest
import mod


class TestIt(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        {}

    def test_one(self):
        self.fail()


class TestMore(unittest.TestCase):
    def test_more(self):
        pass
"""


@pytest.mark.parametrize(
    ("said", "module", "code"),
    [("raise unittest.SkipTest('no')", "", 0), ("mod.begin()", "def begin(): raise unittest.SkipTest", 1)],
)
def test_a_class_of_tests_may_skip_itself(tmp_path: Path, said: str, module: str, code: int) -> None:
    (tmp_path / "mod.py").write_text(f"import unittest\n{module}\n")
    (tmp_path / "test_it.py").write_text(SETS_UP.format(said))
    assert run(tmp_path, "-m", "unittest", "-v", "test_it").returncode == code


def told(folder: Path, python: Path = Path(sys.executable), **more: list[str]) -> dict[str, list[str]]:
    said = {"imports": [], "starts": ["pytest"], "folders": ["."], "asked": [], **more}
    done = subprocess.run(
        [str(python), "-I", "-c", PROBE.read_text(), json.dumps(said)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, list[str]] = json.loads(done.stdout)
    return answer


def test_a_python_names_its_modules_and_its_test_tools_with_what_they_need(work: Path) -> None:
    said = told(work)
    assert {"asyncio", "sqlite3", "_csv", "sys", "pytest", "grpc"} <= {*said["modules"]}
    assert {"pytest", "_pytest", "pluggy", "iniconfig", "packaging"} <= {*said["tools"]}
    assert "grpc" not in said["tools"]
    assert {"asyncio", "sqlite3"} <= {*said["own"]}


def test_what_a_test_imports_is_a_tool_but_where_the_task_is_about_it(work: Path) -> None:
    assert "grpc" in told(work, imports=["grpc"])["tools"]
    assert "grpc" not in told(work, imports=["grpc"], asked=["grpc"])["tools"]
    (work / "grpc.py").write_text("")
    assert "grpc" not in told(work, imports=["grpc"])["tools"], "it is the project under test"


def test_a_python_tells_what_its_start_imports_and_where_its_first_code_may_be(
    work: Path, tmp_path: Path
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "near.pth").write_text("/opt/lib\nimport os; __import__('beside')\nimport near_start\n")
    said = told(work, python=tmp_path / "venv" / "bin" / "python")
    assert {"beside", "near_start"} <= {*said["tools"]}
    assert "os" not in said["tools"]
    assert said["sites"] == [str(site)]
