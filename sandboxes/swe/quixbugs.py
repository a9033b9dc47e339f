"""Tasks from a QuixBugs-style checkout on the user's disk: one small program with one bug each.

The folder holds `python_programs/NAME.py` (or `programs/`) with the bug, `correct_python_programs/NAME.py` (or
`correct_programs/`) without, and tests: `json_testcases/NAME.json`, a line `[[arguments], expected]` per case, or else
`python_testcases/test_NAME.py`. Nothing of it comes with this project, and nothing is downloaded.

Of JSON cases every other one is visible, and all grade, but for those that the Python test beside them skips; its bound on
the error of a result is taken over, too. Python tests are visible and grade. Programs without a test are left out.
"""

from __future__ import annotations

import ast
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rock_env.errors import InvalidArgument
from rock_env.tools import Edit, RunTests, View, render_call
from sandboxes.swe.data import Files, SweTask

__all__ = ["keys", "load"]

_BUGGY = ("python_programs", "programs")
_CORRECT = ("correct_python_programs", "correct_programs")
_HELD_OUT_ONE_IN = 3
_CASES = '''\
"""Each case calls {name} with its arguments."""

import types

import pytest

from {module}.{name} import {name}


def plain(value):
    """Return lists for tuples, generators and sets, so that JSON can say what is expected."""
    if isinstance(value, types.GeneratorType | tuple | list):
        return [plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(each) for each in value)
    return value


def close(value):
    """Return what equals results that differ from these in the last digits."""
    if isinstance(value, list):
        return [close(each) for each in value]
    return pytest.approx(value) if isinstance(value, float) else value

'''
_CASE = """
def test_case_{number}():
    assert plain({name}(*{arguments!r})) == {expected}

"""
_HEAD = """\
import sys
from pathlib import Path

import pytest

pytest.use_correct = False
sys.path.append(str(Path(__file__).resolve().parent))
"""


def keys(folder: Path, split: str) -> tuple[str, ...]:
    """Return the names of a split's programs, sorted; a hash of the name decides the split."""
    return tuple(name for name in _names(folder) if _split(name) == split)


def _split(name: str) -> str:
    number = int(hashlib.sha256(name.encode()).hexdigest(), 16)
    return "held_out" if number % _HELD_OUT_ONE_IN == 0 else "train"


@lru_cache(maxsize=8)
def _names(folder: Path) -> tuple[str, ...]:
    buggy, correct = _folder(folder, _BUGGY), _folder(folder, _CORRECT)
    return tuple(
        path.stem
        for path in sorted(buggy.glob("*.py"))
        if (correct / path.name).is_file() and _tests_of(folder, path.stem) is not None
    )


def _folder(folder: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        if (folder / name).is_dir():
            return folder / name
    raise InvalidArgument(
        f"{str(folder)!r} is no QuixBugs checkout: got no folder {' or '.join(names)} in it. "
        "Clone QuixBugs and give path=FOLDER."
    )


def _tests_of(folder: Path, name: str) -> Path | None:
    for path in (folder / "json_testcases" / f"{name}.json", folder / "python_testcases" / f"test_{name}.py"):
        if path.is_file():
            return path
    return None


def load(folder: Path, key: str) -> SweTask:
    """Read a task. Raise `KeyError` for a program that the checkout does not have."""
    if key not in _names(folder):
        raise KeyError(key)
    buggy, correct = _folder(folder, _BUGGY), _folder(folder, _CORRECT)
    program = (buggy / f"{key}.py").read_text()
    tests = _tests_of(folder, key)
    assert tests is not None, "names without tests are not in the list"
    visible, hidden, wanted = _suites(tests, buggy.name, key)
    file = f"{buggy.name}/{key}.py"
    helpers = _helpers(tests)
    repo = [(file, program.encode()), (f"{buggy.name}/__init__.py", b""), (f"tests/test_{key}.py", visible)]
    repo += [(f"tests/{name}", content) for name, content in helpers]
    fix = Edit(file, *_difference(program, (correct / f"{key}.py").read_text()))
    return SweTask(
        key=key,
        name=key,
        report=f"`{key}` in {file} gives wrong results, fails or never ends for some arguments. It has one bug.",
        repo=tuple(sorted(repo)),
        hidden=((f"test_{key}.py", hidden), *helpers),
        fail_to_pass=wanted,
        pass_to_pass=(),
        solution=tuple(render_call(call) for call in (View(file), fix, RunTests())),
    )


def _helpers(tests: Path) -> Files:
    """Return the modules beside Python tests that they may import."""
    if tests.suffix == ".json":
        return ()
    modules = (path for path in sorted(tests.parent.glob("*.py")) if not path.name.startswith("test_"))
    return tuple((path.name, path.read_bytes()) for path in modules if path.name != "conftest.py")


def _suites(tests: Path, module: str, name: str) -> tuple[bytes, bytes, tuple[str, ...]]:
    """Return the visible and the hidden test file, and the ids of the hidden tests."""
    if tests.suffix == ".py":
        text = _HEAD + tests.read_text()
        found = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
        ids = tuple(f"{tests.name}::{node.name}" for node in found if node.name.startswith("test"))
        return text.encode(), text.encode(), ids
    rules = _rules(tests.parents[1] / "python_testcases" / f"test_{name}.py")
    cases = []
    for number, line in enumerate(tests.read_text().splitlines()):
        if line.strip():
            arguments, expected = json.loads(line)
            arguments = arguments if isinstance(arguments, list) else [arguments]
            if arguments not in rules.skipped:
                expected = rules.expected(arguments, expected)
                cases.append(_CASE.format(number=number, name=name, arguments=arguments, expected=expected))
    head = _CASES.format(module=module, name=name)
    ids = tuple(f"test_{name}.py::{case.split()[1].removesuffix('():')}" for case in cases)
    return (head + "".join(cases[::2])).encode(), (head + "".join(cases)).encode(), ids


@dataclass(frozen=True, slots=True)
class _Rules:
    """What a Python test says of the JSON cases that it runs."""

    skipped: list[object]
    """Arguments that take the right program minutes."""
    bound: int | None
    """Number of the argument that bounds the error of the result, if one does."""

    def expected(self, arguments: list[object], expected: object) -> str:
        """Return the text of what a result is compared with."""
        if self.bound is None:
            return f"close({expected!r})" if _has_floats(expected) else repr(expected)
        return f"pytest.approx({expected!r}, abs={arguments[self.bound]!r})"


def _has_floats(value: object) -> bool:
    return any(map(_has_floats, value)) if isinstance(value, list) else isinstance(value, float)


def _rules(test: Path) -> _Rules:
    """Read them off a test that skips where `input_data == [...]` or compares with `approx(..., abs=input_data[N])`."""
    skipped: list[object] = []
    bound: int | None = None
    for node in ast.walk(ast.parse(test.read_text() if test.is_file() else "")):
        match node:
            case ast.If(test=condition, body=[ast.Expr(ast.Call(func=ast.Attribute(attr="skip")))]):
                compared = (part for part in ast.walk(condition) if isinstance(part, ast.Compare))
                skipped += [ast.literal_eval(part.comparators[0]) for part in compared]
            case ast.keyword(arg="abs", value=ast.Subscript(slice=number)):
                bound = ast.literal_eval(number)
    return _Rules(skipped, bound)


def _difference(buggy: str, correct: str) -> tuple[str, str]:
    """Return the smallest block of whole lines (old, new) that makes `correct` of `buggy` and is unique there."""
    old, new = buggy.split("\n"), correct.split("\n")
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    while True:
        block = "\n".join(old[head : len(old) - tail])
        if block.strip() and buggy.count(block) == 1:
            return block, "\n".join(new[head : len(new) - tail])
        if head == tail == 0:
            raise InvalidArgument("the buggy and the correct program cannot be told apart")
        head, tail = max(0, head - 1), max(0, tail - 1)
