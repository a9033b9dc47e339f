"""A plugin of pytest that makes a run of tests in a box mean what it says, whatever the code under test does to it.

It is bound into each container beside the guest, read-only, and graders have pytest load it first (`-p rock_guard`). The
session runs in a child process. The parent reports success only where the child came to its end, said so with a number that
it was told, and had no failure; code under test that ends the process early, or changes its exit code at exit, is a failed
run. Before the run counts, what runs and judges tests must be the same objects as before the code under test was imported.
What a test compares is asked whether it equals just anything, and a test that the code under test skips is no success. It
runs in whatever Python the image has, from 3.6 on.
"""

import ast
import builtins
import os
import sys
import unittest
import unittest.mock

import _pytest.assertion.rewrite
import _pytest.main
import _pytest.outcomes
import _pytest.python
import _pytest.reports
import _pytest.runner
import pluggy
import pytest

if False:  # typing of newer Pythons
    from typing import Any

ENDED_EARLY, TAMPERED = 71, 72
_METHODS = (type(lambda: None), staticmethod, classmethod, property)


_MODULES = (builtins, _pytest.main, _pytest.outcomes, _pytest.python, _pytest.reports, _pytest.runner)
_CLASSES = (unittest.TestCase, unittest.TestResult, pluggy.PluginManager)


def _judges() -> "list[tuple[Any, str, Any]]":
    """Return what runs tests and judges them: where it is, its name there, and the object."""
    return [each for where in _MODULES + _CLASSES for each in _contents(where)]


def _contents(where: "Any") -> "list[tuple[Any, str, Any]]":
    """Return the functions and classes of a module or a class, and the methods of its own classes."""
    found = []
    for name, value in list(vars(where).items()):
        if isinstance(value, _METHODS) or callable(value):
            found.append((where, name, value))
        if isinstance(value, type) and value.__module__ == getattr(where, "__name__", ""):
            own = list(vars(value).items())
            found += [(value, inner, method) for inner, method in own if isinstance(method, _METHODS)]
    return found


_ALLOWED = (
    "print",
    "open",
    "input",
    "_",
    "breakpoint",
    "exit",
    "quit",
    "copyright",
    "credits",
    "license",
    "__import__",
)
"""Builtins that programs replace and no judgement depends on."""


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


class _Run:
    """What is known of this process's run of tests."""

    def __init__(self) -> None:
        self.pipe = -1
        self.secret = b""
        self.session = None  # type: Any
        self.before = _judges()
        self.codes = {}  # type: dict[str, Any]
        self.hooks = set()  # type: set[int]
        self.why = ""
        self.skipped = False
        self.passed = 0


# -- comparisons


class _Compared(ast.NodeTransformer):
    """Has each side of `==` in an assertion looked at."""

    def visit_Compare(self, node: "Any") -> "Any":
        self.generic_visit(node)
        if any(isinstance(each, (ast.Eq, ast.NotEq)) for each in node.ops):
            node.left = _looked_at(node.left)
            node.comparators = [_looked_at(each) for each in node.comparators]
        return node


class _Asserted(ast.NodeTransformer):
    """Finds the assertions."""

    def visit_Assert(self, node: "Any") -> "Any":
        node.test = _Compared().visit(node.test)
        return node


_CONSTANT = ast.Constant if hasattr(ast, "Constant") else ast.Num


def _looked_at(node: "Any") -> "Any":
    if isinstance(node, (_CONSTANT, ast.Starred)):
        return node
    call = ast.Call(func=ast.Name(id="rock_guard_looks", ctx=ast.Load()), args=[node], keywords=[])
    return ast.fix_missing_locations(ast.copy_location(call, node))


def _rewriting(original: "Any") -> "Any":
    def rewrite_asserts(mod: "Any", *more: "Any", **named: "Any") -> "Any":
        _Asserted().visit(mod)
        return original(mod, *more, **named)

    return rewrite_asserts


def _comparing(original: "Any") -> "Any":
    def assertEqual(self: "Any", first: "Any", second: "Any", msg: "Any" = None) -> None:  # noqa: N802
        original(self, _looks(first), _looks(second), msg)

    return assertEqual


def _looks(value: "Any", deep: int = 0) -> "Any":
    """Return a value as it is, having asked it, and what it holds, whether it equals just anything."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in (list, tuple, set, frozenset, dict) and deep < 4:
        for number, each in enumerate(value.items() if kind is dict else value):
            if number >= 1000:
                break
            _looks(each, deep + 1)
        return value
    if not _RUN.why and _equals_anything(value, kind):
        _RUN.why = "an object of the class " + kind.__name__ + " equals anything"
    return value


_PLAIN = (int, float, str, bytes, bool, complex, type(None), type)
_STRANGE = (object(), 7919 * 104729, 7919.104729, "no value of anybody's 7919", b"7919", (7919,))


def _equals_anything(value: "Any", kind: "Any") -> bool:
    if kind is type(unittest.mock.ANY) or _is_of_a_library(kind):
        return False
    strange = [*_STRANGE, [7919], {"7919": 7919}]
    for each in strange:
        try:
            if (value == each) is True:
                return True
        except Exception:  # noqa: BLE001  # an object of the code under test may do anything
            continue
    return False


def _is_of_a_library(kind: "Any") -> bool:
    """Return whether somebody else than the code under test says what is equal to objects of a class."""
    code = getattr(kind.__eq__, "__code__", None)
    if code is None:
        return True
    library = os.path.dirname(os.__file__)  # noqa: PTH120  # as old Pythons have it
    return code.co_filename.startswith(library) or _by_tests(code.co_filename)


def _by_tests(file: str) -> bool:
    """Return whether a file is a test, a conftest.py or of an installed package."""
    return "-packages/" in file or file.rpartition(os.sep)[2].startswith(("test", "conftest"))


# -- the run


def _go_on_in_a_child() -> None:
    """Return in a child; the parent waits for it, ends as it may be believed to have ended, and never returns."""
    reading, writing = os.pipe()
    secret = os.urandom(16)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.close(writing)
        _watch(child, reading, secret)
    os.close(reading)
    _RUN.secret, _RUN.pipe = secret, writing


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: "Any") -> None:
    """Remember the session, which knows how it ends."""
    _RUN.session = session


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: "Any") -> None:
    """Remember who has a say, before a test's module is imported."""
    _RUN.hooks = _implementations(session.config)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: "Any") -> None:
    """Remember what each test is, now that all are known."""
    for item in session.items:
        _RUN.codes[item.nodeid] = _code(item)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: "Any", call: "Any") -> "Any":
    """Look after each phase of a test whether it is what it was."""
    raised = call.excinfo.value if call.excinfo is not None else None
    if isinstance(raised, _SKIPS) and not _is_of_tests(call.excinfo):
        _RUN.skipped = True
        if _XFAILED is not None and isinstance(raised, _XFAILED):
            _RUN.why = "it says that the test " + item.nodeid + " is expected to fail"
    outcome = yield
    if call.when == "call" and outcome.get_result().passed:
        _RUN.passed += 1
    if _RUN.why:
        return
    if _RUN.codes.get(item.nodeid) is not _code(item):
        _RUN.why = "the test " + item.nodeid + " is not the one that was collected"
    elif "runtest" in vars(item):
        _RUN.why = "the test " + item.nodeid + " runs in another way"
    else:
        _RUN.why = _changed()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: "Any") -> None:
    """Tell the parent how it ended, if it may be believed."""
    if _RUN.pipe < 0:
        return
    why = _RUN.why or _changed()
    if not why and _RUN.hooks and _implementations(config) - _RUN.hooks:
        why = "a plugin came with the code under test"
    status = int(_RUN.session.exitstatus) if _RUN.session is not None else 0
    status = status or int(_RUN.skipped)
    said = (
        b"tampered " + why.encode() if why else b"%d %d %d" % (_RUN.session is not None, status, _RUN.passed)
    )
    os.write(_RUN.pipe, _RUN.secret + said[:2000])
    os.close(_RUN.pipe)
    _RUN.pipe = -1


_XFAILED = getattr(pytest.xfail, "Exception", None)
_SKIPS = (_pytest.outcomes.Skipped, unittest.SkipTest) + ((_XFAILED,) if isinstance(_XFAILED, type) else ())


def _is_of_tests(excinfo: "Any") -> bool:
    """Return whether tests, or a library of theirs, raised it."""
    for entry in reversed(list(excinfo.traceback)):
        file = str(entry.path)
        if "/_pytest/" not in file and "/unittest/" not in file:
            return _by_tests(file) or file.endswith("_test.py")
    return True


def _code(item: "Any") -> "Any":
    function = getattr(item, "function", None)
    return getattr(getattr(function, "__func__", function), "__code__", None)


def _changed() -> str:
    """Return what of the judges is another object than before."""
    for where, name, value in _RUN.before:
        if vars(where).get(name) is not value and not (where is builtins and name in _ALLOWED):
            return getattr(where, "__name__", "") + "." + name + " was replaced"
    return ""


def _implementations(config: "Any") -> "set[int]":
    """Return the functions, by identity, that have a say in running and reporting; those of a conftest.py left out."""
    found = set()
    for name in _DECIDING:
        for each in getattr(config.hook, name).get_hookimpls():
            code = getattr(each.function, "__code__", None)
            if code is None or not code.co_filename.endswith("conftest.py"):
                found.add(id(each.function))
    return found


def _watch(child: int, reading: int, secret: bytes) -> None:
    """Wait for the child and end as it may be believed to have ended."""
    while True:
        try:
            _, status = os.waitpid(child, 0)
            break
        except InterruptedError:
            continue
        except KeyboardInterrupt:
            continue  # the child has it, too
    os.set_blocking(reading, False)
    try:
        said = os.read(reading, 4096)
    except BlockingIOError:
        said = b""
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    if not said.startswith(secret):
        if code == 0:
            _say("the run of the tests ended before it was over", ENDED_EARLY)
        _end(code)
    said = said[len(secret) :]
    if said.startswith(b"tampered "):
        _say(said[len(b"tampered ") :].decode(errors="replace"), TAMPERED)
    had_session, at_end, passed = said.split()
    _end(code if had_session == b"0" else int(at_end) or code, int(passed))


def _say(why: str, code: int) -> None:
    os.write(2, ("rock_guard: " + why + ": this run does not count\n").encode())
    _end(code)


def _end(code: int, passed: int = 0) -> None:
    """End, and tell the grader how: what a script makes of an exit code is not what it was."""
    token, _, path = _REPORT.partition(":")
    if path:
        words = " ".join(sys.argv[1:]).replace("\n", " ")
        with open(path, "a", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            file.write(" ".join([token, str(code), str(passed), words]) + "\n")
    os._exit(code)


_pytest.assertion.rewrite.rewrite_asserts = _rewriting(_pytest.assertion.rewrite.rewrite_asserts)
unittest.TestCase.assertEqual = _comparing(unittest.TestCase.assertEqual)  # type: ignore[method-assign]
builtins.rock_guard_looks = _looks  # type: ignore[attr-defined]
_RUN = _Run()
_REPORT = os.environ.pop("ROCK_GUARD_REPORT", "")
# A worker of xdist has threads already, and its controller is guarded; --version ends without a word.
if "PYTEST_XDIST_WORKER" not in os.environ and not {"--version", "-V", "-VV"} & set(sys.argv):
    _go_on_in_a_child()
