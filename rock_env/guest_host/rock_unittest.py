"""Makes a run of `python -m unittest` in a box mean what it says, as `rock_guard` does for pytest.

Loaded by the first code of such a Python. The run goes on in a child process; its parent believes a success only where the
child came to its end, ran a test, counted no failure, and what runs and judges tests is what it was.
"""

import atexit
import builtins
import unittest

from rock_judges import RUN, changed, comparing, contents, go_on_in_a_child, tell  # type: ignore[import-not-found]

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
                RUN.passed = max(result.testsRun - bad - len(result.skipped), 0)
                RUN.why = RUN.why or changed()
                tell(True, int(bad > 0 or result.testsRun == 0))

    return runTests


unittest.main.runTests = _judged(unittest.main.runTests)  # type: ignore[method-assign]
unittest.TestCase.assertEqual = comparing(unittest.TestCase.assertEqual)  # type: ignore[method-assign]
RUN.before = [each for where in (builtins, *_CLASSES, unittest.main) for each in contents(where)]
go_on_in_a_child()
atexit.register(tell, True, 1)
