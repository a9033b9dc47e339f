"""Makes a run of `python -m unittest` in a box mean what it says, as `rock_guard` does for pytest.

Loaded by the first code of such a Python. The run goes on in a child process; its parent believes a success only where the
child came to its end, ran a test, counted no failure, and what runs and judges tests is what it was.
"""

import atexit
import builtins
import os
import sys
import unittest

from rock_judges import RUN, changed, comparing, contents, go_on_in_a_child, tell  # type: ignore[import-not-found]
from watch_rock import reported_here  # type: ignore[import-not-found]

if False:  # typing of newer Pythons
    from typing import Any

_CLASSES = (
    unittest.TestCase,
    unittest.TestResult,
    unittest.TestSuite,
    unittest.TextTestRunner,
    unittest.TextTestResult,
    unittest.TestLoader,
)


class _Stop(Exception):
    """Ends a test without a failure, which is for `unittest.case` alone to do."""

    def __new__(cls, *arguments: "Any") -> "Any":
        if os.path.basename(sys._getframe(1).f_code.co_filename) != "case.py":  # noqa: PTH119
            RUN.why = "it stops a test from within"
        return super().__new__(cls, *arguments)


def _counting(original: "Any") -> "Any":
    def addSuccess(self: "Any", test: "Any") -> None:  # noqa: N802
        RUN.passed += 1
        original(self, test)

    return addSuccess


def _says_skip(test: "Any") -> bool:
    """Return whether the file of a test speaks of skipping: else the code under test skipped it."""
    file = getattr(sys.modules.get(type(test).__module__), "__file__", None)
    try:
        with open(file or "", "rb") as source:  # noqa: PTH123
            return b"skip" in source.read().lower()
    except OSError:
        return False


def _judged(original: "Any") -> "Any":
    def runTests(self: "Any") -> None:  # noqa: N802
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
                skipped = [test for test, _ in result.skipped if not _says_skip(test)]
                tell(True, int(bad > 0 or not 0 < result.testsRun <= ended or bool(skipped)))

    return runTests


unittest.main.runTests = _judged(unittest.main.runTests)  # type: ignore[method-assign]
unittest.TestCase.assertEqual = comparing(unittest.TestCase.assertEqual)  # type: ignore[method-assign]
unittest.case._ShouldStop = _Stop  # type: ignore[attr-defined]
unittest.TestResult.addSuccess = _counting(unittest.TestResult.addSuccess)  # type: ignore[method-assign]
RUN.before = [each for where in (builtins, *_CLASSES, unittest.main) for each in contents(where)]
if not RUN.in_program:
    reported_here()
    go_on_in_a_child()
    atexit.register(tell, True, 1)
