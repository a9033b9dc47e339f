"""A plugin of pytest that makes a run of tests in a box mean what it says, whatever the code under test does to it.

It is bound into each container beside the guest, read-only, and the first code of each Python (`begin_rock`) has pytest load
it. The session runs in a child process. The parent reports success only where the child came to its end, said so with a
number that it was told, and had no failure; code under test that ends the process early, or changes its exit code at exit,
is a failed run. Before the run counts, what runs and judges tests must be the same objects as before the code under test was
imported. What a test compares is asked whether it equals just anything, and a test that the code under test skips is no
success. It runs in whatever Python the image has, from 3.6 on.
"""

import ast
import builtins
import os
import sys
import unittest

import _pytest.assertion.rewrite
import _pytest.config
import _pytest.main
import _pytest.outcomes
import _pytest.python
import _pytest.reports
import _pytest.runner
import pluggy
import pytest
from probes_rock import compared  # type: ignore[import-not-found]
from rock_judges import (  # type: ignore[import-not-found]
    RUN,
    by_tests,
    changed,
    close_tests,
    comparing,
    contents,
    end_tampered,
    go_on_in_a_child,
    library_of,
    of_unittest,
    replaced,
    source_of,
    tell,
    tests_speak_of,
)
from watch_rock import reported_here  # type: ignore[import-not-found]
from work_fence import held_folders, stand, watch_tests  # type: ignore[import-not-found]

if False:  # typing of newer Pythons
    from typing import Any

_OF_PYTEST = (pytest, sys.modules[pytest.raises.__module__], sys.modules[pytest.approx.__module__])
_MODULES = (builtins, _pytest.main, _pytest.outcomes, _pytest.python, _pytest.reports, _pytest.runner)
_CLASSES = (pluggy.PluginManager,)


def _judges() -> "list[tuple[Any, str, Any]]":
    """Return what runs tests and judges them: where it is, its name there, and the object."""
    return [*of_unittest(), *(each for where in _MODULES + _OF_PYTEST + _CLASSES for each in contents(where))]


_DECIDING = (
    "pytest_runtest_protocol",
    "pytest_runtest_makereport",
    "pytest_runtest_setup",
    "pytest_runtest_call",
    "pytest_pyfunc_call",
    "pytest_runtest_logreport",
    "pytest_report_teststatus",
    "pytest_sessionfinish",
)


class _Session:
    """What is known of this process's session."""

    def __init__(self) -> None:
        self.session = None  # type: Any
        self.codes = {}  # type: dict[str, Any]
        self.hooks = set()  # type: set[int]
        self.over = set()  # type: set[str]
        self.passed = set()  # type: set[str]
        self.speaks = {}  # type: dict[str, bool]
        self.skipped = False
        self.told = False
        """The tests speak of the variable that tells which test runs."""
        self.library = []  # type: list[tuple[Any, str, Any]]


# -- comparisons


class _Asserted(ast.NodeTransformer):
    """Finds the assertions."""

    def visit_Assert(self, node: "Any") -> "Any":
        node.test = compared(node.test)
        return node


def _rewriting(original: "Any") -> "Any":
    def rewrite_asserts(mod: "Any", *more: "Any", **named: "Any") -> "Any":
        _Asserted().visit(mod)
        return original(mod, *more, **named)

    return rewrite_asserts


_CURRENT = "PYTEST_CURRENT_TEST"


def _unnamed(original: "Any") -> "Any":
    """Return what tells by a variable which test runs, now for tests alone that speak of it: its name is not the work's."""

    def _update_current_test_var(item: "Any", when: "Any") -> None:
        if _OWN.told or not when:
            original(item, when)
        else:  # that a test runs is known to honest code
            os.environ[_CURRENT] = "test.py::test (" + when + ")"

    return _update_current_test_var


# -- the run


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: "Any") -> None:
    """Remember the session, which knows how it ends."""
    _OWN.session = session


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: "Any") -> None:
    """Remember who has a say, before a test's module is imported."""
    _OWN.hooks = _implementations(session.config)
    _OWN.library = library_of([str(each).split("::")[0] for each in session.config.args])


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: "Any") -> None:
    """Remember what each test is, now that all are known."""
    for item in session.items:
        _OWN.codes[item.nodeid] = _code(item)
    for folder in {_folder_of(item) for item in session.items}:
        _OWN.speaks[folder] = _speaks(folder)
    watch_tests()
    close_tests()
    _OWN.told = tests_speak_of(_CURRENT.encode())


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: "Any", call: "Any") -> "Any":
    """Look after each phase of a test whether it is what it was."""
    raised = call.excinfo.value if call.excinfo is not None else None
    if isinstance(raised, _SKIPS) and not _is_of_tests(call.excinfo, item):
        _OWN.skipped = True
        if _XFAILED is not None and isinstance(raised, _XFAILED):
            RUN.why = "it says that the test " + item.nodeid + " is expected to fail"
    outcome = yield
    report = outcome.get_result()
    if report.skipped and not isinstance(raised, _SKIPS) and not _speaks_of_skips(item):
        _OWN.skipped = True
    if RUN.why:
        return
    if _OWN.codes.get(item.nodeid) is not _code(item):
        RUN.why = "the test " + item.nodeid + " is not the one that was collected"
    elif "runtest" in vars(item):
        RUN.why = "the test " + item.nodeid + " runs in another way"
    else:
        name = replaced(_OWN.library) if call.when == "call" else ""
        word = name.partition(" ")[0].rpartition(".")[2].encode()
        said = name and any(tests_speak_of(each % word) for each in (b"'%s'", b'"%s"'))
        RUN.why = changed() or ("" if said else name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: "Any") -> None:
    """Remember which tests are over, and which of them passed or failed as expected."""
    if report.when == "call" and (report.passed or (report.skipped and hasattr(report, "wasxfail"))):
        _OWN.passed.add(report.nodeid)
        RUN.passed = len(_OWN.passed)
    if report.when == "teardown":
        _OWN.over.add(report.nodeid)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: "Any") -> None:
    """Tell the parent how it ended, if it may be believed."""
    RUN.why = RUN.why or changed() or replaced(_OWN.library)
    if not RUN.why and _OWN.hooks and _implementations(config) - _OWN.hooks:
        RUN.why = "a plugin came with the code under test"
    status = int(_OWN.session.exitstatus) if _OWN.session is not None else 0
    if not status and not RUN.why and not config.option.collectonly and _OWN.codes.keys() - _OWN.over:
        RUN.why = "it ends the run before its last test"
    tell(_OWN.session is not None, status or int(_OWN.skipped))


_XFAILED = getattr(pytest.xfail, "Exception", None)
_SKIPS = (_pytest.outcomes.Skipped, unittest.SkipTest) + ((_XFAILED,) if isinstance(_XFAILED, type) else ())


def _is_of_tests(excinfo: "Any", item: "Any") -> bool:
    """Return whether tests, or a library of theirs, raised it, or marked the test so."""
    entries = [str(entry.path) for entry in excinfo.traceback]
    if entries and entries[-1].endswith("/_pytest/skipping.py"):  # by a mark
        return _speaks_of_skips(item)
    for file in reversed(entries):
        if "/_pytest/" not in file and "/unittest/" not in file:
            return by_tests(file) or file.endswith("_test.py")
    return True


def _speaks_of_skips(item: "Any") -> bool:
    """Return whether the tests speak of skipping where this one is: else the code under test marked it."""
    return _OWN.speaks.get(_folder_of(item), True)


def _folder_of(item: "Any") -> str:
    """Return where a test lies; `path` is there since pytest 7, `fspath` unless its plugin legacypath is off."""
    return os.path.dirname(str(getattr(item, "path", None) or item.fspath))  # noqa: PTH120


def _speaks(folder: str) -> bool:
    """Return whether a module of tests in a folder, or a conftest.py above it, speaks of skipping."""
    held = (folder + "/").startswith(held_folders())
    names = [name for name in os.listdir(folder) if name.endswith(".py")]  # noqa: PTH208
    files = [
        os.path.join(folder, name)  # noqa: PTH118
        for name in names
        if held or by_tests(name) or name.endswith("_test.py")
    ]
    while folder != os.path.dirname(folder):  # noqa: PTH120
        folder = os.path.dirname(folder)  # noqa: PTH120
        files.append(os.path.join(folder, "conftest.py"))  # noqa: PTH118
    texts = [source_of(file) for file in files if os.path.isfile(file)]  # noqa: PTH113
    return any(b"skip" in text or b"xfail" in text for text in texts)


def _code(item: "Any") -> "Any":
    function = getattr(item, "function", None)
    return getattr(getattr(function, "__func__", function), "__code__", None)


def _implementations(config: "Any") -> "set[int]":
    """Return the functions, by identity, that have a say in running and reporting; those of a conftest.py left out."""
    found = set()
    for name in _DECIDING:
        for each in getattr(config.hook, name).get_hookimpls():
            code = getattr(each.function, "__code__", None)
            if code is None or not code.co_filename.endswith("conftest.py"):
                found.add(id(each.function))
    return found


if hasattr(_pytest.runner, "_update_current_test_var"):
    _pytest.runner._update_current_test_var = _unnamed(_pytest.runner._update_current_test_var)
_pytest.assertion.rewrite.rewrite_asserts = _rewriting(_pytest.assertion.rewrite.rewrite_asserts)
unittest.TestCase.assertEqual = comparing(unittest.TestCase.assertEqual)  # type: ignore[method-assign]
RUN.before = _judges()
_OWN = _Session()
_pytest.config.default_plugins = tuple(  # type: ignore[assignment]
    name for name in _pytest.config.default_plugins if name != __name__
)  # a session within the session is part of a test
# A worker of xdist has threads already, and its controller is guarded; --version ends without a word.
if "PYTEST_XDIST_WORKER" not in os.environ and not {"--version", "-V", "-VV"} & set(sys.argv):
    reported_here()
    go_on_in_a_child()
stand(end_tampered)
