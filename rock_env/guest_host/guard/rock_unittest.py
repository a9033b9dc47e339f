"""Makes a run of `python -m unittest` in a box mean what it says, as `rock_guard` does for pytest.

Loaded by the first code of such a Python. The run goes on in a child process; its parent believes a success only where the
child came to its end, ran a test, counted no failure, and what runs and judges tests is what it was.
"""

import ast
import atexit
import builtins
import importlib.util
import os
import sys
import unittest

from rock_judges import (  # type: ignore[import-not-found]
    RUN,
    changed,
    close_tests,
    comparing,
    contents,
    end_tampered,
    go_on_in_a_child,
    of_unittest,
    source_of,
    tell,
    tests_speak_of,
)
from watch_rock import reported_here  # type: ignore[import-not-found]
from work_fence import stand, watch_tests  # type: ignore[import-not-found]

if False:  # typing of newer Pythons
    from typing import Any


class _Stop(Exception):
    """Ends a test without a failure, which is for `unittest.case` alone to do."""

    def __new__(cls, *arguments: "Any") -> "Any":
        if os.path.basename(sys._getframe(1).f_code.co_filename) != "case.py":  # noqa: PTH119
            RUN.why = "it stops a test from within"
        return super().__new__(cls, *arguments)


def _counting(original: "Any") -> "Any":
    def addSuccess(self: "Any", test: "Any") -> None:  # noqa: N802
        RUN.why = RUN.why or changed()
        if not RUN.why:
            RUN.passed += 1
        original(self, test)

    return addSuccess


def _says(word: bytes, test: "Any") -> bool:
    """Return whether the file of a test speaks of that: else the code under test did it."""
    name = type(test).__module__
    if name == "unittest.suite":  # what makes ready for a class or module
        return bool(tests_speak_of(word) or tests_speak_of(word.capitalize()))
    try:
        if name == "unittest.loader":  # a module that was skipped as it was loaded
            spec = importlib.util.find_spec(test._testMethodName)
            file = spec.origin if spec is not None else None
        else:
            file = getattr(sys.modules.get(name), "__file__", None)
        return word in source_of(file or "").lower()
    except (OSError, ImportError, ValueError):
        return False


def _asked_for(program: "Any") -> "set[str]":
    """Return the tests that stand in the test modules, where all of them are asked for."""
    found = set()  # type: set[str]
    if getattr(program, "testNamePatterns", None) or any(
        "." in str(name) for name in getattr(program, "testNames", None) or ()
    ):
        return found
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None) or ""
        if os.path.basename(file).startswith("test") and not any(part in file for part in _INSTALLED):  # noqa: PTH119
            source = source_of(file)
            found |= set() if b"load_tests" in source else _names(source)
    return found


def _names(source: bytes) -> "set[str]":
    """Return the tests in a module's classes that are test cases of unittest's."""
    found = set()
    for each in ast.parse(source).body:
        if isinstance(each, ast.ClassDef) and any("TestCase" in ast.dump(base) for base in each.bases):
            inner = (str(getattr(one, "name", "")) for one in each.body)
            found |= {name for name in inner if name.startswith("test")}
    return found


def _noting(original: "Any") -> "Any":
    def startTest(self: "Any", test: "Any") -> None:  # noqa: N802
        _PLAYED.add(getattr(test, "_testMethodName", ""))
        original(self, test)

    return startTest


_PLAYED = set()  # type: set[str]
_INSTALLED = ("-packages/", "/lib/python")


def _judged(original: "Any") -> "Any":
    def runTests(self: "Any") -> None:  # noqa: N802
        asked = _asked_for(self)
        watch_tests()
        close_tests()
        try:
            original(self)
        finally:
            result = getattr(self, "result", None)
            if result is not None:
                bad = (
                    len(result.failures)
                    + len(result.errors)
                    + len(getattr(result, "unexpectedSuccesses", ()))
                )
                ended = RUN.passed + bad + len(result.skipped) + len(getattr(result, "expectedFailures", ()))
                RUN.why = RUN.why or changed()
                skipped = [test for test, _ in result.skipped if not _says(b"skip", test)]
                expected = getattr(result, "expectedFailures", ())
                unsaid = [test for test, _ in expected if not _says(b"expectedfailure", test)]
                RUN.passed += len(expected) - len(unsaid)
                skipped += unsaid
                names = [getattr(test, "_testMethodName", None) for test, _ in result.skipped]
                played = (
                    asked if None in names else _PLAYED.union(names)
                )  # Python 3.12 starts no test that is skipped
                bad += len(skipped) + int(not asked <= played)
                tell(True, int(bad > 0 or not 0 < result.testsRun <= ended))

    return runTests


unittest.main.runTests = _judged(unittest.main.runTests)  # type: ignore[method-assign]
unittest.TestCase.assertEqual = comparing(unittest.TestCase.assertEqual)  # type: ignore[method-assign]
unittest.case._ShouldStop = _Stop  # type: ignore[attr-defined]
unittest.TestResult.startTest = _noting(unittest.TestResult.startTest)  # type: ignore[method-assign]
unittest.TestResult.addSuccess = _counting(unittest.TestResult.addSuccess)  # type: ignore[method-assign]
RUN.before = contents(builtins) + of_unittest()
if not RUN.in_program:
    reported_here()
    go_on_in_a_child()
    atexit.register(tell, True, 1)
    stand(end_tampered)
