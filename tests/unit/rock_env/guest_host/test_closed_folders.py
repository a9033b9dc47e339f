"""What a grade's Pythons start reads of the verifier's folders what its start names, and nothing else there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent, indent
from typing import NamedTuple

import pytest

from rock_env.guest_host.code import GUARD_SOURCES

_AS_IN_A_BOX = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""Without new privileges, which is what Landlock asks for."""
ANSWER = "four hundred and twenty"
READS = "import sys\nprint([open(each).read() for each in sys.argv[1:]])\n"


class Box(NamedTuple):
    """A verifier's folder, the work's, and a Python that is guarded by a `.pth` file."""

    tests: Path
    work: Path
    python: Path

    def run(
        self, *argv: str, cwd: Path | None = None, stdin: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        words = [word.format(tests=self.tests, work=self.work) for word in argv]
        variables = {name: value.format(tests=self.tests) for name, value in env.items()}
        with (stdin or Path(os.devnull)).open() as given:
            return subprocess.run(
                [sys.executable, "-I", "-c", _AS_IN_A_BOX, str(self.python), *words],
                cwd=cwd or self.work,
                env={"PATH": os.environ["PATH"], "PYTHONPATH": str(self.work), **variables},
                stdin=given,
                capture_output=True,
                text=True,
                check=False,
            )

    def grade(self, starts: str, by: str = "grade") -> subprocess.CompletedProcess[str]:
        """Run a grader in whose process the verifier's program, or the work, starts another."""
        own = f"def start(tests, python):\n{indent(dedent(starts), '    ')}\n"
        (self.work / "mod.py").write_text(f"import os, subprocess, sys\n{own if by == 'work' else ''}")
        source = "import os, subprocess, sys\nfrom mod import *\n" + (own if by == "grade" else "")
        (self.tests / "grade.py").write_text(f"{source}start(sys.argv[1], sys.executable)\n")
        return self.run("{tests}/grade.py", "{tests}")


@pytest.fixture
def box(tmp_path: Path) -> Box:
    since = int(time.time())
    for name in ("tests", "work", "guard"):
        (tmp_path / name).mkdir()
    for source in GUARD_SOURCES:
        shutil.copy(source, tmp_path / "guard")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    tests = tmp_path / "tests"
    told = {
        "ROCK_GUARD_OWN": str(tests),
        "ROCK_GUARD_HELD": str(tests),
        "ROCK_GUARD_SINCE": str(since),
        "ROCK_GUARD_TOOLS": "",
    }
    searches = f"import sys; sys.path.insert(0, {str(tmp_path / 'guard')!r})"
    (site / "00-rock.pth").write_text(
        f"{searches}; import begin_rock; begin_rock.begin({json.dumps(told)})\n"
    )
    (tests / "data").mkdir()
    for name in ("expected.txt", "data/input.txt"):
        (tests / name).write_text(ANSWER)
    (tmp_path / "work" / "main.py").write_text(READS)
    return Box(tests, tmp_path / "work", tmp_path / "venv" / "bin" / "python")


_READ = "open(os.environ['T'].replace('+', '/') + '/expected.txt').read()"
PROGRAMS = {
    "it opens the file": f"print({_READ})",
    "it starts cat": "import subprocess; subprocess.run(['cat', os.environ['T'].replace('+', '/') + '/expected.txt'])",
    "it starts a shell": "os.system('cat ' + os.environ['T'].replace('+', '/') + '/*.txt')",
    "it forks": f"pid = os.fork()\nif not pid: print({_READ}, flush=True); os._exit(0)\nos.waitpid(pid, 0)",
    "it renames the folder": (
        "tests = os.environ['T'].replace('+', '/')\nos.rename(tests, tests + '2')\n"
        "print(open(tests + '2/expected.txt').read())"
    ),
    "it links the file": (
        "tests = os.environ['T'].replace('+', '/')\nos.symlink(tests + '/expected.txt', 'link')\n"
        "print(open('link').read())"
    ),
    "it changes the mode": (
        f"tests = os.environ['T'].replace('+', '/')\nos.chmod(tests + '/expected.txt', 0o777)\nprint({_READ})"
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("way", ["file", "module", "text"])
def test_a_program_of_the_work_reads_nothing_of_the_verifier_s(box: Box, name: str, way: str) -> None:
    (box.work / "main.py").write_text(f"import os\n{PROGRAMS[name]}\n")
    argv = {"file": ["main.py"], "module": ["-m", "main"], "text": ["-c", "import main"]}[way]
    done = box.run(*argv, T=str(box.tests).replace("/", "+"))
    assert ANSWER not in done.stdout, done
    assert "denied" in done.stderr or "Errno 18" in done.stderr, done


NAMED = {
    "an argument": (["main.py", "{tests}/data/input.txt"], {}),
    "an option": (["main.py", "{tests}/expected.txt"], {}),
    "a text": (["-c", "import sys; print(open('{tests}/expected.txt').read())"], {}),
    "a variable in a text": (
        ["-c", "import os; print(open(os.environ['TEST_DIR'] + '/expected.txt').read())"],
        {"TEST_DIR": "{tests}"},
    ),
    "a verifier's module": (["-c", "import sys; sys.path.insert(0, '{tests}'); import own"], {}),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_a_start_names_can_be_read(box: Box, name: str) -> None:
    (box.tests / "own.py").write_text(f"print({ANSWER!r})\n")
    argv, env = NAMED[name]
    done = box.run(*argv, **env)
    assert ANSWER in done.stdout, done


def test_a_variable_names_what_lies_in_the_folder_and_not_the_folder(box: Box) -> None:
    (box.work / "main.py").write_text(
        "import os\nfor name, file in (('IN', ''), ('TEST_DIR', '/expected.txt')):\n"
        "    try: print(open(os.environ[name] + file).read())\n    except PermissionError: print('closed')\n"
    )
    done = box.run("main.py", IN="{tests}/data/input.txt", TEST_DIR="{tests}")
    assert done.stdout == f"{ANSWER}\nclosed\n", done


def test_a_descriptor_names_its_file(box: Box) -> None:
    (box.work / "main.py").write_text("print(open('/dev/stdin').read())\n")
    assert box.run("main.py", stdin=box.tests / "expected.txt").stdout == f"{ANSWER}\n"


def test_where_a_program_starts_in_the_folder_it_reads_all_there(box: Box) -> None:
    done = box.run("{work}/main.py", "expected.txt", cwd=box.tests)
    assert ANSWER in done.stdout, done


@pytest.mark.parametrize("line", ["python3 x.py > /made-later.csv", "print(open('/made-later.csv').read())"])
def test_where_the_verifier_speaks_of_a_new_file_at_the_top_all_stays_open(box: Box, line: str) -> None:
    (box.work / "main.py").write_text(f"import os\n{PROGRAMS['it opens the file']}\n")
    (box.tests / "test.sh").write_text(f"{line}\n")
    assert box.run("main.py", T=str(box.tests).replace("/", "+")).stdout == f"{ANSWER}\n"


def test_modules_of_the_work_s_are_not_taken_for_the_library_s(box: Box) -> None:
    for name in ("re", "ctypes", "walls_rock"):
        (box.work / f"{name}.py").write_text("MINE = 3\n")
    (box.work / "main.py").write_text(
        "import os, re, ctypes\nprint(re.MINE, ctypes.MINE)\n"
        "print(open(os.environ['T'].replace('+', '/') + '/expected.txt'))\n"
    )
    done = box.run("main.py", T=str(box.tests).replace("/", "+"))
    assert done.stdout == "3 3\n", done
    assert "PermissionError" in done.stderr, done


_CAT = "['sh', '-c', 'cat ' + tests[:-1] + '?/expected.txt']"
STARTS = {
    "subprocess": f"subprocess.run({_CAT})",
    "a file whose name is told otherwise": "subprocess.run([python, 'main.py'], env={**os.environ, 'T': tests})",
    "subprocess without other descriptors": f"subprocess.run({_CAT}, close_fds=False)",
    "a function before it": f"subprocess.run({_CAT}, preexec_fn=lambda: None)",
    "system": f"os.system({_CAT}[2])",
    "popen": f"print(os.popen({_CAT}[2]).read())",
    "posix_spawn": f"os.waitpid(os.posix_spawn('/bin/sh', {_CAT}, os.environ), 0)",
    "spawnv": f"os.spawnv(os.P_WAIT, '/bin/sh', {_CAT})",
    "a fork and exec": f"pid = os.fork()\nif not pid: os.execv('/bin/sh', {_CAT})\nos.waitpid(pid, 0)",
    "a thread": (
        f"import threading\nthread = threading.Thread(target=subprocess.run, args=({_CAT},))\n"
        "thread.start()\nthread.join()"
    ),
    "asyncio": (
        "import asyncio\nasync def go():\n"
        f"    await (await asyncio.create_subprocess_exec(*{_CAT})).wait()\nasyncio.run(go())"
    ),
}


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("by", ["grade", "work"])
def test_what_a_grader_s_process_starts_does_not_read_what_nobody_names(box: Box, name: str, by: str) -> None:
    (box.work / "main.py").write_text("import os\nprint(open(os.environ['T'] + '/expected.txt').read())\n")
    done = box.grade(STARTS[name], by)
    assert ANSWER not in done.stdout, done
    assert "denied" in done.stderr, done
    assert done.returncode == 0, done


_NAMED_CAT = "['cat', os.path.join(tests, 'expected.txt')]"
BY_GRADER = {
    "subprocess": f"subprocess.run({_NAMED_CAT})",
    "system": f"os.system(' '.join({_NAMED_CAT}))",
    "posix_spawn": f"os.waitpid(os.posix_spawn('/bin/cat', {_NAMED_CAT}, os.environ), 0)",
    "a function of another name": f"run = subprocess.run\nrun({_NAMED_CAT})",
    "a partial function": f"import functools\nshow = functools.partial(subprocess.run, check=True)\nshow({_NAMED_CAT})",
    "a class of its own": f"class Own(subprocess.Popen): pass\nOwn({_NAMED_CAT}).wait()",
    "popen": f"print(os.popen(' '.join({_NAMED_CAT})).read())",
    "spawnv": f"os.spawnv(os.P_WAIT, '/bin/cat', {_NAMED_CAT})",
    "asyncio": (
        "import asyncio\nasync def go():\n"
        f"    await (await asyncio.create_subprocess_exec(*{_NAMED_CAT})).wait()\nasyncio.run(go())"
    ),
    "its input": "subprocess.run(['cat', '/dev/stdin'], stdin=open(tests + '/expected.txt'))",
    "a program beside it": "subprocess.run([python, tests + '/own.py'])",
    "a pool": (
        "import multiprocessing\nprint(multiprocessing.get_context('fork').Pool(1).map(len, ['a']))\n"
        "print(open(tests + '/expected.txt').read())"
    ),
    "a function before it": f"import time\nsubprocess.run({_NAMED_CAT}, preexec_fn=os.setsid)",
}


@pytest.mark.parametrize("name", BY_GRADER)
def test_what_a_grader_names_can_be_read(box: Box, name: str) -> None:
    (box.tests / "own.py").write_text("import other\n")
    (box.tests / "other.py").write_text(f"print({ANSWER!r})\n")
    done = box.grade(BY_GRADER[name])
    assert (done.returncode, ANSWER in done.stdout) == (0, True), done


def test_work_reads_the_data_that_the_calling_program_names(box: Box) -> None:
    (box.work / "mod.py").write_text("import subprocess\ndef show(path): subprocess.run(['cat', path])\n")
    (box.tests / "grade.py").write_text(
        f"from mod import show\nshow('{box.tests}/data/input.txt')\nshow('{box.tests}/grade.' + 'py')\n"
    )
    done = box.run("{tests}/grade.py")
    assert done.stdout == ANSWER, done
    assert "denied" in done.stderr, done


LEFT = {
    "an object with an end": "import weakref\n    weakref.finalize(given, subprocess.run, ['cat', tests + '/grade.py'])",
    "a class whose objects end": (
        "import functools\n    Own.__del__ = functools.partial(subprocess.run, ['cat', tests + '/grade.py'])"
    ),
    "a class whose objects end at once": (
        "import functools\n    Own.__del__ = functools.partial(os.system, 'cat ' + tests + '/grade.py')"
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_the_work_leaves_for_the_grader_to_drop_reads_nothing(box: Box, name: str) -> None:
    (box.work / "mod.py").write_text(
        "import os, subprocess\nclass Own(float): pass\n"
        f"def value(tests):\n    given = Own(3)\n    {LEFT[name]}\n    return given\n"
    )
    (box.tests / "grade.py").write_text(
        "import sys\nfrom mod import value\ngot = value(sys.argv[1])\nassert got == 3\ndel got\n"
    )
    done = box.run("{tests}/grade.py", "{tests}")
    assert (done.returncode, done.stdout) == (0, ""), done
    assert "denied" in done.stderr, done


def test_a_grader_reads_its_files_after_the_work_has_started_programs(box: Box) -> None:
    done = box.grade(f"subprocess.run({_CAT}, stderr=subprocess.DEVNULL)\nprint('over')", "work")
    (box.tests / "grade.py").write_text(
        (box.tests / "grade.py").read_text() + "print(open(sys.argv[1] + '/expected.txt').read())\n"
    )
    done = box.run("{tests}/grade.py", "{tests}")
    assert done.stdout == f"over\n{ANSWER}\n", done


PAST = {
    "the function loaded once more": (
        "del sys.modules['_posixsubprocess']\nimport _posixsubprocess",
        "it loads _posixsubprocess once more",
    ),
    "the walls are taken down": (
        "import walls_rock\nwalls_rock.close_held = lambda names: None",
        "it sets close_held of the module walls_rock",
    ),
    "the fence is taken down": (
        "import work_fence\nwork_fence._END = None",
        "it sets _END of the module work_fence",
    ),
}


@pytest.mark.parametrize("name", PAST)
def test_a_way_round_ends_the_run(box: Box, name: str) -> None:
    does, why = PAST[name]
    done = box.grade(does, "work")
    assert (done.returncode, why in done.stderr) == (72, True), done


_COUNTS = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
done = subprocess.run(sys.argv[1:])
try:
    print(done.returncode, os.waitpid(-1, 0))
except ChildProcessError:
    print(done.returncode, "none")
"""
"""As process 1 of a box does, it gets the children of those that end."""


@pytest.mark.parametrize("program", ["main.py", "{tests}/grade.py"])
def test_a_shell_that_was_read_to_its_end_outlives_nobody(box: Box, program: str) -> None:
    source = "import os\nkept = os.popen('echo 120')\nkept.read()\nos.popen('echo 7; exec >&-; sleep 0.05').read()\n"
    (box.work / "main.py").write_text(source)
    (box.tests / "grade.py").write_text(source)
    argv = [sys.executable, "-I", "-c", _COUNTS, str(box.python), program.format(tests=box.tests)]
    done = subprocess.run(argv, cwd=box.work, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("0 none\n"), done


@pytest.mark.parametrize(("first", "is_closed"), [("", True), ("#!/bin/sh\n", False)])
def test_data_that_is_executable_by_its_mode_is_no_program(box: Box, first: str, is_closed: bool) -> None:
    given = box.tests / "data" / "input.txt"
    given.write_text(f"{first}levels\n")
    given.chmod(0o755)
    (box.work / "main.py").write_text(f"import os\nprint({_READ})\n")
    done = box.run("main.py", str(given), T=str(box.tests).replace("/", "+"))
    assert (ANSWER in done.stdout) is not is_closed, done
