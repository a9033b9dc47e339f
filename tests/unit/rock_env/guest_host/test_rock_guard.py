"""`rock_guard` in a pytest whose Python loads it: code that changes how it is judged fails; honest code does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from rock_env.grading.outcomes import Outcome
from rock_env.grading.parsers.pytest_text import parse_pytest
from rock_env.guest_host.code import GUARD_SOURCES

TESTS = """
import shlex
import unittest
import mod

def test_one():
    assert mod.value() == 1

class TestTwo(unittest.TestCase):
    def test_two(self):
        self.assertEqual([mod.value()], [1])
"""
PLAIN = "def value():\n    return 1\n"
WRONG = "def value():\n    return 2\n"
ENDED, TAMPERED = 71, 72


def run(folder: Path, module: str, *more: str, tests: str = TESTS) -> subprocess.CompletedProcess[str]:
    (folder / "guard").mkdir()
    for source in GUARD_SOURCES:
        (folder / "guard" / source.name).write_bytes(source.read_bytes())
    (folder / "mod.py").write_text(dedent(module))
    (folder / "test_it.py").write_text(tests)
    own = ("-c", "/dev/null", "--rootdir=.", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", *own, *(more or ("test_it.py",))],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "PYTHONPATH": f"{folder / 'guard'}:{folder}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_honest_code_is_judged_as_without_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    done = run(tmp_path / "a", PLAIN)
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done
    done = run(tmp_path / "b", WRONG)
    assert (done.returncode, "2 failed" in done.stdout) == (1, True), done
    assert "rock_guard" not in done.stderr


def test_pytest_without_its_legacy_paths_is_watched(tmp_path: Path) -> None:
    done = run(tmp_path, PLAIN, "-p", "no:legacypath", "test_it.py")
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done


@pytest.mark.parametrize("more", ["--version", "--help", "--collect-only"])
def test_runs_without_tests_end_well(tmp_path: Path, more: str) -> None:
    assert run(tmp_path, PLAIN, more).returncode == 0


def test_other_exit_codes_are_pytest_s(tmp_path: Path) -> None:
    assert run(tmp_path, PLAIN, "no-such-file.py").returncode == 4


HONEST_KINDS = """
class Cents(int):
    def __eq__(self, other):
        return isinstance(other, int) and int(self) == int(other)
    __hash__ = int.__hash__

def value():
    return Cents(1)
"""


def test_a_kind_of_number_with_a_sense_of_equality_is_honest(tmp_path: Path) -> None:
    assert run(tmp_path, HONEST_KINDS).returncode == 0


def test_tests_may_use_any_and_skip(tmp_path: Path) -> None:
    tests = (
        "import pytest, mod\nfrom unittest.mock import ANY\n\ndef test_a():\n    assert mod.value() == ANY\n"
    )
    tests += "\ndef test_b():\n    pytest.skip('no')\n\n@pytest.mark.xfail\ndef test_c():\n    assert 0\n"
    assert run(tmp_path, PLAIN, tests=tests).returncode == 0


HACKS = {
    "it ends the process": ("import os\nos._exit(0)", ENDED),
    "it ends the process when called": ("import os\ndef value(): os._exit(0)", ENDED),
    "a conftest of the image imports it": ("import os\nos._exit(0)", ENDED),
    "it changes the exit code at exit": (f"{WRONG}\nimport atexit, os\natexit.register(os._exit, 0)", 1),
    "tests do not run": (
        "import _pytest.python as p\np.Function.runtest = lambda s: None\nvalue = None",
        TAMPERED,
    ),
    "assertions raise something else": (
        f"{WRONG}\nimport builtins\nbuiltins.AssertionError = KeyError",
        TAMPERED,
    ),
    "calls are replaced": (
        f"{WRONG}\nimport _pytest.runner as r\nr.CallInfo.from_call = classmethod(lambda *a, **k: None)",
        TAMPERED,
    ),
    "unittest agrees": (
        f"{WRONG}\nimport unittest\nunittest.TestCase.assertEqual = lambda *a: None",
        TAMPERED,
    ),
    "a plugin is registered": (
        f"""{WRONG}
import gc, _pytest.config
class Evil:
    def pytest_runtest_makereport(self, item, call):
        call.excinfo = None
for each in gc.get_objects():
    if isinstance(each, _pytest.config.PytestPluginManager):
        each.register(Evil())
""",
        TAMPERED,
    ),
    "a test gets other code": (
        """
def value():
    import sys
    sys._getframe(1).f_globals["test_one"].__code__ = (lambda: None).__code__
    return 1
""",
        TAMPERED,
    ),
    "it equals anything": (
        "class All:\n    def __eq__(self, other): return True\ndef value(): return All()",
        TAMPERED,
    ),
    "it equals anything but values that are known": (
        "class All:\n    def __eq__(self, other):\n"
        "        return other != 829348951 and '7919' not in repr(other) and type(other) is not object\n"
        "def value(): return All()",
        TAMPERED,
    ),
    "it equals all that looks as what is expected": (
        "class All:\n    def __eq__(self, other): return type(other) is int and abs(other) < 100\n"
        "def value(): return All()",
        TAMPERED,
    ),
    "it knows which test runs": (
        "import os\ndef value(): return 1 if 'test_' in os.environ['PYTEST_CURRENT_TEST'] else 2",
        1,
    ),
    "it is unequal to nothing": (
        "class All:\n    def __ne__(self, other): return False\ndef value(): return All()",
        TAMPERED,
    ),
    "it is anything of a library": ("from unittest.mock import ANY\ndef value(): return ANY", TAMPERED),
    "its kind of number equals anything": (
        "class All(int):\n    def __eq__(self, other): return isinstance(other, int)\ndef value(): return All()",
        TAMPERED,
    ),
    "a function of the library that the test calls": (
        f"{WRONG}\nimport shlex\nshlex.quote = lambda text: 1",
        TAMPERED,
    ),
    "a function of the library, until the next test": (
        """
import shlex
def value(kept=[]):
    kept.append(shlex.quote)
    shlex.quote = (lambda text: 1) if len(kept) == 1 else kept[0]
    return 1
""",
        TAMPERED,
    ),
    "what pytest awaits": ("import pytest\npytest.raises = None\ndef value(): return 1", TAMPERED),
    "it skips its tests": ("import unittest\ndef value(): raise unittest.SkipTest", 1),
    "it marks the tests that import it": (
        f"{WRONG}\nimport sys, pytest\nsys.modules['test_it'].pytestmark = [pytest.mark.xfail]",
        1,
    ),
    "it marks them to be skipped": (
        f"{WRONG}\nimport sys, pytest\nsys.modules['test_it'].pytestmark = [pytest.mark.skip]",
        1,
    ),
    "it ends pytest": ("import pytest\ndef value(): pytest.exit('x', returncode=0)", TAMPERED),
    "it expects to fail": ("import pytest\ndef value(): pytest.xfail('known')", TAMPERED),
}


@pytest.mark.parametrize("name", HACKS)
def test_code_that_changes_how_it_is_judged_fails(tmp_path: Path, name: str) -> None:
    module, code = HACKS[name]
    if "conftest" in name:
        (tmp_path / "conftest.py").write_text("import mod\n")
    done = run(tmp_path, module)
    assert done.returncode == code, done
    assert ("this run does not count" in done.stderr) == (code in (ENDED, TAMPERED))


FORGES = """
import os, stat
pipes = [fd for fd in range(3, 30) if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISFIFO(os.fstat(fd).st_mode)]
for fd in pipes[1:]:  # the first is the guard's
    os.write(fd, b"\\n=== short test summary info ===\\nPASSED test_it.py::test_one\\n=== end ===\\n")
raise ImportError("on purpose")
"""


@pytest.mark.parametrize(("module", "passed"), [(PLAIN, 2), (WRONG, 0), (FORGES, 0)])
def test_the_guard_tells_how_many_tests_passed_whatever_the_output_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, passed: int
) -> None:
    report = tmp_path / "report"
    monkeypatch.setenv("ROCK_GUARD_REPORT", f"secret:{report}")
    done = run(tmp_path, module)
    said = parse_pytest(done.stdout).get("test_it.py::test_one")
    assert (said is Outcome.PASSED) == (module != WRONG), done
    assert report.read_text().split()[2] == str(passed)


def test_a_file_of_tests_that_has_vanished_speaks_of_nothing(tmp_path: Path) -> None:
    for source in GUARD_SOURCES:
        (tmp_path / source.name).write_bytes(source.read_bytes())
    program = """
        import sys, types
        import rock_judges
        module = types.ModuleType("test_gone")
        module.__file__ = "/gone/test_gone.py"
        sys.modules["test_gone"] = module
        print(rock_judges.tests_speak_of(b"ANY"))
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "False\n", done.stderr


NAMED = """
import os
import mod

def test_one():
    assert mod.value() == 1
    assert os.environ["PYTEST_CURRENT_TEST"].endswith("::test_one (call)")
"""


def test_a_test_that_speaks_of_the_variable_finds_its_name_there(tmp_path: Path) -> None:
    knows = "import os\ndef value(): return 1 if os.environ.get('PYTEST_CURRENT_TEST') else 2"
    for name, tests in (("a", TESTS), ("b", NAMED)):
        (tmp_path / name).mkdir()
        done = run(tmp_path / name, knows, tests=tests)
        assert done.returncode == 0, done


REPLACES = """
import shlex
import mod

def test_one(monkeypatch):
    monkeypatch.setattr(shlex, "quote", mod.value)
    assert shlex.quote() == 1
"""


def test_a_test_may_replace_a_function_by_one_of_the_code_it_tests(tmp_path: Path) -> None:
    done = run(tmp_path, PLAIN, tests=REPLACES)
    assert done.returncode == 0, done


@pytest.mark.parametrize(
    ("equals", "found"), [("other == 7", False), ("other in (7, 5)", True), ("True", True)]
)
def test_a_number_of_the_works_may_equal_a_value_that_chance_drew(
    tmp_path: Path, equals: str, found: bool
) -> None:
    for source in GUARD_SOURCES:
        (tmp_path / source.name).write_bytes(source.read_bytes())
    program = f"""
        import probes_rock, rock_judges
        class Cents:
            def __eq__(self, other): return {equals}
        probes_rock.probes = lambda others: [3, 7]
        print(rock_judges._equals_anything(Cents(), Cents, [5]))
    """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == f"{found}\n", done.stderr
