"""A verifier's own programs: what the work changes of them is no success, and honest ones end as without a guard."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from rock_env.guest_host.code import GUARD_SOURCES

ENDED, TAMPERED = 71, 72
GRADER = """\
import json
import sys

from mod import value


def check(number, wanted):
    return value(number) == wanted


class Judge:
    def all(self):
        return check(1, 1) and check(2, 2)


def main():
    good = Judge().all()
    with open(sys.argv[1], "w") as file:
        json.dump({"reward": float(good)}, file)
    print(json.dumps({"good": good}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
"""
RIGHT, WRONG = "def value(n): return n\n", "def value(n): return 1\n"


class Box(NamedTuple):
    """A verifier's folder, the work's, and a virtual environment whose Python is guarded by a `.pth` file."""

    tests: Path
    work: Path
    python: Path
    report: Path

    def run(self, *argv: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        words = [word.format(tests=self.tests) for word in argv]
        variables = {"PATH": os.environ["PATH"], "PYTHONPATH": str(self.work), **env}
        return subprocess.run(
            [str(self.python), *words],
            cwd=self.work,
            env=variables,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def box(tmp_path: Path) -> Box:
    guard = tmp_path / "guard"
    for name in ("tests", "work", "guard"):
        (tmp_path / name).mkdir()
    for source in GUARD_SOURCES:
        shutil.copy(source, guard)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    report = tmp_path / "report"
    told = {
        "ROCK_GUARD_OWN": str(tmp_path / "tests"),
        "ROCK_GUARD_TOOLS": "",
        "ROCK_GUARD_REPORT": f"word:{report}",
    }
    begins = f"import sys; sys.path.insert(0, {str(guard)!r}); import begin_rock; begin_rock.begin({json.dumps(told)})"
    (site / "00-rock.pth").write_text(f"{begins}\n")
    (tmp_path / "work" / "mod.py").write_text(RIGHT)
    (tmp_path / "tests" / "grade.py").write_text(GRADER)
    return Box(tmp_path / "tests", tmp_path / "work", tmp_path / "venv" / "bin" / "python", report)


def reward(box: Box) -> object:
    return json.loads((box.tests / "reward.json").read_text())


@pytest.mark.parametrize(("module", "code"), [(RIGHT, 0), (WRONG, 1)])
def test_a_grader_ends_as_without_a_guard(box: Box, module: str, code: int) -> None:
    (box.work / "mod.py").write_text(module)
    done = box.run("-B", "-W", "error", "{tests}/grade.py", "{tests}/reward.json")
    assert (done.returncode, done.stderr) == (code, ""), done
    assert json.loads(done.stdout) == {"good": not code}
    assert reward(box) == {"reward": float(not code)}
    assert not box.report.exists(), "its exit code is nobody's reward"


HACKS = {
    "it ends the process": ("import os\nos._exit(0)", ENDED),
    "it ends the process badly": ("import os\nos._exit(3)", ENDED),
    "it kills the process": ("import os\nos.kill(os.getpid(), 9)", ENDED),
    "it has the parent killed": (
        "import os, signal, time\nos.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(9)",
        ENDED,
    ),
    "it leaves": ("import sys\nsys.exit(0)", TAMPERED),
    "it leaves when called": ("def value(n): raise SystemExit(0)", TAMPERED),
    "it forks before it ends": ("import os\nif os.fork(): os._exit(0)", ENDED),
    "a function of the grader's is replaced": (
        "import sys\ndef value(n):\n    sys.modules['__main__'].check = lambda *a: True\n    return n",
        TAMPERED,
    ),
    "a method of the grader's is replaced": (
        "import sys\ndef value(n):\n    sys.modules['__main__'].Judge.all = lambda s: True\n    return n",
        TAMPERED,
    ),
    "a function gets other code": (
        "import sys\ndef value(n):\n    sys.modules['__main__'].check.__code__ = (lambda *a: True).__code__\n    return n",
        TAMPERED,
    ),
    "a function of the library is replaced": (
        "import json\njson.dump = lambda what, file: file.write('1')\ndef value(n): return n",
        TAMPERED,
    ),
    "an object in the place of a function of the library": (
        "import json\nclass Dump:\n    def __call__(self, what, file): file.write('1')\njson.dump = Dump()\nvalue = int",
        TAMPERED,
    ),
    "a part of a function in its place": (
        "import functools, json\njson.dump = functools.partial(lambda _, what, file: file.write('1'), 0)\nvalue = int",
        TAMPERED,
    ),
    "the exit is replaced": (
        "import sys\nsys.exit = lambda code, end=sys.exit: end(0)\nvalue = bool",
        TAMPERED,
    ),
    "what it returns equals anything": (
        "class All:\n    def __eq__(self, other): return True\ndef value(n): return All()",
        TAMPERED,
    ),
    "what it returns is unequal to nothing": (
        "class All:\n    def __ne__(self, other): return False\ndef value(n): return All()",
        TAMPERED,
    ),
    "it returns ANY": ("from unittest.mock import ANY\ndef value(n): return ANY", TAMPERED),
    "a builtin is replaced": (
        "import builtins\nbuiltins.float = lambda x: 1.0\ndef value(n): return n",
        TAMPERED,
    ),
}


@pytest.mark.parametrize("name", HACKS)
def test_work_that_gets_in_a_grader_s_way_is_no_success(box: Box, name: str) -> None:
    module, code = HACKS[name]
    (box.work / "mod.py").write_text(module)
    done = box.run("{tests}/grade.py", "{tests}/reward.json")
    assert done.returncode == code, done
    assert "this run does not count" in done.stderr
    assert box.report.read_text().startswith(f"word {code} 0 ")


def fenced(box: Box) -> dict[str, str]:
    """Return the variables of a grade whose work came just now."""
    return {"ROCK_GUARD_SINCE": str(int(time.time())), "ROCK_GUARD_HELD": str(box.tests)}


HANDS_OVER = """\
import json
import sys
import xml.etree.ElementTree
from collections import OrderedDict
from mod import value
try:
    import tomllib as toml
except ImportError:
    import json as toml


def key(n): return n


good = all([value(2, key) == 2]) and not OrderedDict()
with open(sys.argv[1], "w") as file:
    json.dump({"reward": float(good)}, file)
sys.exit(not good)
"""
PUT = {
    "a builtin": "all=lambda each: True",
    "what compares": "rock_guard_looks=lambda n: 0",
    "a module": "json=type('J', (), {'dump': lambda what, file: file.write('1')})",
    "a class": "OrderedDict=dict",
    "other builtins": "__builtins__={**vars(__import__('builtins')), 'all': lambda each: True}",
}


@pytest.mark.parametrize("name", PUT)
def test_a_name_put_into_a_grader_is_no_success(box: Box, name: str) -> None:
    env = fenced(box)
    (box.tests / "grade.py").write_text(HANDS_OVER)
    (box.work / "mod.py").write_text("def value(n, key): return n\n")
    done = box.run("{tests}/grade.py", "{tests}/reward.json", **env)
    assert done.returncode == 0, done
    put = f"import sys\ndef value(n, key):\n    key.__globals__.update({PUT[name]})\n    return n\n"
    (box.work / "mod.py").write_text(put)
    done = box.run("{tests}/grade.py", "{tests}/reward.json", **env)
    assert (done.returncode, " of grade.py was replaced" in done.stderr) == (TAMPERED, True), done


LOOKS = {
    "the frame that calls": "sys._getframe(1).f_locals['wanted']",
    "the program's values": "vars(sys.modules['__main__'])['check']",
    "the program's code": "sys.modules['__main__'].check.__code__",
    "a module that starts programs, once more": (
        "import _imp, importlib.machinery as m; _imp.create_builtin(m.ModuleSpec('posix', m.BuiltinImporter))"
    ),
    "one of another name": (
        "import _posixsubprocess as p, importlib.machinery as m; name = 'x._posixsubprocess'; "
        "file = getattr(p, '__file__', ''); spec = m.ModuleSpec(name, None, origin=file); "
        "file and m.ExtensionFileLoader(name, file).create_module(spec) or __import__('_imp').create_builtin(spec)"
    ),
    "the program's file": "open(sys.argv[0]).read()",
    "the guard's values": "sys.modules['rock_judges'].RUN",
    "the memory of the parent": "open('/proc/%d/mem' % os.getppid(), 'rb')",
}


@pytest.mark.parametrize("name", LOOKS)
def test_work_that_looks_at_a_grader_is_no_success(box: Box, name: str) -> None:
    env = fenced(box)
    (box.work / "mod.py").write_text(f"import os, sys\ndef value(n):\n    {LOOKS[name]}\n    return n\n")
    done = box.run("{tests}/grade.py", "{tests}/reward.json", **env)
    assert (done.returncode, "this run does not count" in done.stderr) == (TAMPERED, True), done


def test_a_fenced_grader_ends_as_without_a_fence(box: Box) -> None:
    env = fenced(box)
    (box.work / "mod.py").write_text("import collections\nA = collections.namedtuple('A', 'n')\n" + RIGHT)
    (box.tests / "cases.py").write_text(CASES)
    for name in ("grade.py", "cases.py"):
        done = box.run(f"{{tests}}/{name}", *(["{tests}/reward.json"] * (name == "grade.py")), **env)
        assert done.returncode == 0, done
    assert reward(box) == {"reward": 1.0}


def test_the_work_leaves_nothing_for_later(box: Box) -> None:
    late = "import atexit\natexit.register(lambda: open('late', 'w').write('1'))\n"
    (box.work / "mod.py").write_text(late + RIGHT)
    assert box.run("{tests}/grade.py", "{tests}/reward.json").returncode == 0
    assert not (box.work / "late").exists()


def test_what_a_grader_does_later_is_done(box: Box) -> None:
    (box.tests / "late.py").write_text(
        "import atexit\natexit.register(lambda: open('late', 'w').write('1'))\n"
    )
    (box.tests / "open.py").write_text("file = open('open', 'w')\nfile.write('1')\n")
    assert box.run("{tests}/late.py").returncode == 0
    assert box.run("{tests}/open.py").returncode == 0
    assert (box.work / "late").read_text() == (box.work / "open").read_text() == "1"


CASES = """\
import sys
import unittest

sys.path.insert(0, ".")
import mod


class TestIt(unittest.TestCase):
    def test_one(self):
        self.assertEqual([mod.value(1), mod.value(2)], [1, 2])


unittest.main()
"""


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (RIGHT, 0),
        (WRONG, 1),
        ("import os\nos._exit(0)", ENDED),
        ("import sys\nsys.exit(0)", TAMPERED),
        ("import unittest\ndef value(n): raise unittest.SkipTest", 1),
        ("import unittest\nunittest.TestCase.assertEqual = lambda *a: None\nvalue = int", TAMPERED),
        ("import unittest\nunittest.TestResult.wasSuccessful = lambda s: True\nvalue = float.hex", TAMPERED),
    ],
)
def test_a_file_of_cases_is_judged_as_by_unittest(box: Box, module: str, code: int) -> None:
    (box.work / "mod.py").write_text(module)
    (box.tests / "cases.py").write_text(CASES)
    done = box.run("-I", "{tests}/cases.py", "-v")
    assert done.returncode == code, done
    assert box.report.read_text() == f"word {code} {int(code == 0)} {box.tests}/cases.py -v\n"


def test_other_programs_of_a_verifier_run_as_ever(box: Box) -> None:
    programs = {
        "error.py": ("raise KeyError('x')", 1),
        "exits.py": ("import sys\nsys.exit('no')", 1),
        "wrong.py": ("def x(:", 1),
        "again.py": ("def f(): pass\nf = staticmethod(f)\ndef g(): pass\ndel g", 0),
        "names.py": (
            "import dataclasses, pickle, sys\n@dataclasses.dataclass\nclass A:\n    x: int\n"
            "assert pickle.loads(pickle.dumps(A(1))) == A(1)\nassert __file__ == sys.argv[0]\n"
            "assert sys.path[0] == __file__.rpartition('/')[0]\nimport helper",
            0,
        ),
        "helper.py": ("import time\ntime.sleep = lambda s: None", 0),
    }
    for name, (source, _) in programs.items():
        (box.tests / name).write_text(source)
    for name, (_, code) in programs.items():
        done = box.run(f"{{tests}}/{name}")
        assert done.returncode == code, done
        assert "rock_" not in done.stderr, done


SCRIPT = """\
export PYTHONPATH=$PWD
{python} -c 'import mod; assert mod.value(2) == 2, "no"' && echo text
{python} - <<'END' && echo input
import mod
assert mod.value(2) == 2
END
{python} -c 'import mod; mod.main()' && echo called
"""


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (RIGHT + "def main(): raise SystemExit(0)", "text\ninput\ncalled\n"),
        (WRONG + "def main(): raise SystemExit(2)", ""),
        ("def value(n): raise SystemExit(0)", ""),
        ("import os\nos._exit(0)", ""),
        ("import sys\ndef value(n): return sys._getframe(1) and n", ""),
    ],
)
def test_texts_in_a_script_are_watched(box: Box, module: str, said: str) -> None:
    env = {**os.environ, **fenced(box)}
    (box.work / "mod.py").write_text(module)
    (box.tests / "test.sh").write_text(SCRIPT.format(python=box.python))
    done = subprocess.run(
        ["sh", str(box.tests / "test.sh")],
        cwd=box.work,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == said, done


def test_what_a_script_ends_is_nobody_s_doing(box: Box) -> None:
    (box.tests / "serve.py").write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)")
    script = f"{box.python} {box.tests}/serve.py > ready & until [ -s ready ]; do :; done; kill $!; wait $!; echo $?"
    done = subprocess.run(["sh", "-c", script], cwd=box.work, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("143\n", "")
    assert not box.report.exists()
