"""What the guards of a grade's test runs share: a session in a child, what judges it, and what it compares.

Used by `rock_guard` for pytest and by `rock_unittest`; laid out beside them. It runs in whatever Python the image has, from
3.6 on, and imports no test runner but `unittest`.
"""

import builtins
import importlib
import operator
import os
import re
import sys
import unittest
import unittest.mock

import probes_rock  # type: ignore[import-not-found]
import walls_rock  # type: ignore[import-not-found]
import work_fence  # type: ignore[import-not-found]
from watch_rock import ENDED_EARLY, TAMPERED, end, ended, say  # type: ignore[import-not-found]

if False:  # typing of newer Pythons
    from typing import Any

_LIBRARY = os.path.dirname(os.__file__)  # noqa: PTH120  # as old Pythons have it
_METHODS = (type(lambda: None), staticmethod, classmethod, property)


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


class Run:
    """What is known of this process's run of tests."""

    def __init__(self) -> None:
        self.teller = None  # type: Any
        self.sources = {}  # type: dict[str, bytes]
        """Of the tests' files that are closed, by path."""
        self.before = []  # type: list[tuple[Any, str, Any]]
        self.names = {}  # type: dict[str, tuple[dict[str, Any], dict[str, Any], Any]]
        """What modules of the tests hold, what their own import left there, and the same as `_seen` has it; by file."""
        self.why = ""
        self.passed = 0
        self.in_program = False
        """It is part of a program of the verifier's that is watched itself (`main_rock`)."""
        self.judged = False
        self.status = 0
        """Of runs of tests in such a program."""


RUN = Run()


def contents(where: "Any") -> "list[tuple[Any, str, Any]]":
    """Return the functions and classes of a module or a class, and the methods of its own classes."""
    found = []
    for name, value in list(vars(where).items()):
        if isinstance(value, _METHODS) or callable(value):
            found.append((where, name, value))
        if isinstance(value, type) and value.__module__ == getattr(where, "__name__", ""):
            own = list(vars(value).items())
            found += [(value, inner, method) for inner, method in own if isinstance(method, _METHODS)]
    return found


def of_unittest() -> "list[tuple[Any, str, Any]]":
    """Return all functions and classes of `unittest` and what is in these classes, and the functions of `operator`."""
    found = contents(operator)
    for part in (
        "case",
        "suite",
        "loader",
        "runner",
        "result",
        "main",
        "mock",
        "util",
        "signals",
        "async_case",
    ):
        try:
            module = importlib.import_module("unittest." + part)
        except ImportError:  # before 3.8
            continue
        found += contents(module)
        for each in list(vars(module).values()):
            if isinstance(each, type) and each.__module__ == module.__name__:
                found += [
                    (each, name, value) for name, value in vars(each).items() if name not in _SET_BY_TESTS
                ]
                found += [(each, name, None) for name in _MIGHT if name not in vars(each)]
    return found


_SET_BY_TESTS = (
    "maxDiff",
    "longMessage",
    "__doc__",
    "__dict__",
    "__weakref__",
    "__annotations__",
    "_abc_impl",
)
_MIGHT = (
    "__getattribute__",
    "__getattr__",
    "__setattr__",
    "__call__",
    "__new__",
    "__init__",
    "__bool__",
    "__len__",
)
"""Attributes that would decide if a class came to have them."""


def changed() -> str:
    """Return what of the judges is another object than before."""
    for where, name, value in RUN.before:
        if vars(where).get(name) is not value and not (where is builtins and name in _ALLOWED):
            return getattr(where, "__name__", "") + "." + name + " was replaced"
    return put_in()


def close_tests() -> None:
    """Keep the tests' files, now that they are loaded, from what the work starts, and remember the tests' names."""
    spaces = work_fence.test_modules()
    paths = list(spaces)
    RUN.sources.update({path: source_of(path) for path in paths if os.path.exists(path)})  # noqa: PTH110
    for path, space in spaces.items():
        if space["__name__"] != "__main__":  # its own code has not come to its end
            RUN.names.setdefault(path, (space, dict(space), _seen(space)))
    walls_rock.close_files(paths, work_fence.held_folders())


def source_of(path: str) -> bytes:
    """Return what a test's file holds, or held before it was closed. Raise `OSError` where it cannot be read."""
    if path in RUN.sources:
        return RUN.sources[path]
    with open(path, "rb") as file:  # noqa: PTH123
        return file.read()


def put_in() -> str:
    """Return which name a module of the tests holds otherwise than its own import left it, or an empty text.

    A new name counts if it hides a builtin, another value if it takes the place of something to call or of a module. What
    the module's source binds by `global`, sets as an attribute or says in a text is its own.
    """
    for file, (space, before, seen) in RUN.names.items():
        for name in {*space, *before} if _seen(space) != seen else ():
            now, was = space.get(name, RUN), before.get(name, RUN)
            judges = name in vars(builtins) if was is RUN else callable(was) or type(was) is type(sys)
            said = re.compile(_BINDS.replace(b"NAME", re.escape(name).encode()))
            own = not judges or said.search(RUN.sources.get(file, b""))
            if now is not was and (name == "__builtins__" or not own):
                return name + " of " + os.path.basename(file) + " was replaced"  # noqa: PTH119
    return ""


def _seen(space: "dict[str, Any]") -> "Any":
    """Return the names and the identities of what they stand for: no value is asked what it equals."""
    return [*space], [*map(id, space.values())]


_BINDS = rb"\bglobal\b[^\n]*\bNAME\b|\.NAME\s*=[^=]|[\"'.]NAME[\"']"


# -- comparisons


def comparing(original: "Any") -> "Any":
    """Return `assertEqual` that has both sides looked at."""

    def assertEqual(self: "Any", first: "Any", second: "Any", msg: "Any" = None) -> None:  # noqa: N802
        original(self, looks(first, [second]), looks(second, [first]), msg)

    return assertEqual


def begins(value: "Any") -> "Any":
    """Return a value as it is, which `ends` looks at beside the next."""
    if len(_WAITING) > _MOST_WAITING:  # those whose next never came
        del _WAITING[:]
    _WAITING.append(value)
    return value


def ends(value: "Any", *known: "Any") -> "Any":
    """Look at a value and the one that waits for it."""
    other = _WAITING.pop() if _WAITING else probes_rock.NOTHING
    looks(other, [value])
    return looks(value, [other, *known])


_WAITING = []  # type: list[Any]
_MOST_WAITING = 1000


def looks_at(value: "Any", *known: "Any") -> "Any":
    """Look at a value that is compared with constants."""
    return looks(value, [*known])


def looks(value: "Any", others: "list[Any]", deep: int = 0) -> "Any":
    """Return a value as it is, having asked it, and what it holds, whether it equals just anything.

    `others` are what it is compared with.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in _HOLDING and deep < 4:
        for number, each in enumerate(value.items() if kind is dict else value):
            if number >= 1000:
                break
            looks(each, others, deep + 1)
        return value
    if not RUN.why and _equals_anything(value, kind, others):
        RUN.why = "an object of the class " + kind.__name__ + " equals anything"
    return value


_HOLDING = (list, tuple, set, frozenset, dict)
_PLAIN = (int, float, str, bytes, bool, complex, type(None), type)


vars(builtins).update(rock_guard_looks=looks_at, rock_guard_begins=begins, rock_guard_ends=ends)


def _equals_anything(value: "Any", kind: "Any", others: "list[Any]") -> bool:
    if kind is type(unittest.mock.ANY):
        return not tests_speak_of(b"ANY")
    if is_of_a_library(kind):
        return False
    met = probes_rock.NOTHING
    for turn in range(_ROUNDS):
        own = [each for each in others if turn and type(each) in (*_PLAIN, *_HOLDING)]
        for each in probes_rock.probes(others) + own:
            try:
                equal = (value == each) is True or (value != each) is False
            except Exception:  # noqa: BLE001  # an object of the code under test may do anything
                continue
            if equal and met is probes_rock.NOTHING:
                met = each  # chance may have drawn the very value of an honest object
            elif equal and each != met:
                return True
        if met is probes_rock.NOTHING:
            return False
    return False


_ROUNDS = 4
"""Of questions to an object that equals one value, for another; what it is compared with may be that."""


def tests_speak_of(word: bytes) -> bool:
    """Return whether a module of the verifier's holds a word; where it has none that is known, whether a test does."""
    held = work_fence.held_folders()
    texts = [text for path, text in RUN.sources.items() if path.startswith(held)] or [*RUN.sources.values()]
    if not texts:
        files = [getattr(each, "__file__", None) or "" for each in list(sys.modules.values())]
        texts = [
            source_of(file)
            for file in files
            if by_tests(file)
            and not file.startswith(_LIBRARY)
            and "-packages/" not in file
            and os.path.isfile(file)  # noqa: PTH113
        ]
    return any(word in text for text in texts)


def is_of_a_library(kind: "Any") -> bool:
    """Return whether somebody else than the code under test says what is equal to objects of a class."""
    codes = [getattr(each, "__code__", None) for each in (kind.__eq__, kind.__ne__)]
    return all(
        code is None or code.co_filename.startswith(_LIBRARY) or by_tests(code.co_filename) for code in codes
    )


def by_tests(file: str) -> bool:
    """Return whether a file is a test, a conftest.py or of an installed package."""
    return "-packages/" in file or file.rpartition(os.sep)[2].startswith(("test", "conftest"))


# -- the child and who watches it


def go_on_in_a_child() -> None:
    """Return in a child; the parent waits for it, ends as it may be believed to have ended, and never returns."""
    if RUN.in_program:
        return
    reading, writing = os.pipe()
    secret = os.urandom(16)
    sys.stdout.flush()
    sys.stderr.flush()
    walls_rock.hide_memory()
    child = os.fork()
    if child:
        os.close(writing)
        _watch(child, reading, secret)
    os.close(reading)
    tell_by(writing, secret)


def tell_by(pipe: int, secret: bytes) -> None:
    """Have what is told written to a pipe, behind a secret."""
    RUN.teller = _telling(pipe, secret)
    next(RUN.teller)


def _telling(pipe: int, secret: bytes) -> "Any":
    """Write what is sent, once, by this process and no child of it; the secret is in a frame, which nobody reads unseen."""
    asked = os.getpid
    own = asked()
    said = yield
    while asked() != own:
        said = yield
    if work_fence.work_calls() and not said.startswith(b"tampered "):
        said = b"tampered it says itself how its tests ended"
    os.write(pipe, secret + said[:2000])
    os.close(pipe)
    yield


def end_tampered(why: str) -> None:
    """End this process as one whose tests say nothing."""
    RUN.why = RUN.why or why
    if RUN.teller is None:
        say(why, TAMPERED)
    send(b"")
    os._exit(TAMPERED)


# -- the library


_HOOKED = ("builtins", "sys", "warnings", "logging", "threading", "signal", "test", "this", "antigravity")
"""Modules in which programs put functions of their own, and two that show something when they are imported."""
_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import|import[ \t]+([\w., \t]+))", re.MULTILINE)
_MOST_FILES = 300


def library_of(paths: "list[str]") -> "list[tuple[Any, str, Any]]":
    """Import what tests import of the standard library, before the code under test is, and return what is in it."""
    return library({each for path in _test_files(paths) for each in _imports(path)})


def library(names: "set[str]") -> "list[tuple[Any, str, Any]]":
    """Import modules of the standard library, and return what is in them; other modules are left out."""
    known = getattr(sys, "stdlib_module_names", ())
    found = []
    for name in sorted(names):
        if name.split(".")[0] not in known or name.split(".")[0] in _HOOKED:
            continue
        try:
            found += contents(importlib.import_module(name))
        except Exception:  # noqa: BLE001  # it is for the test to say what it lacks
            continue
    return found


def _test_files(paths: "list[str]") -> "list[str]":
    found = []
    for path in paths:
        if not os.path.isdir(path):  # noqa: PTH112  # as old Pythons have it
            found.append(path)
            continue
        for folder, _, names in os.walk(path):
            found += [
                os.path.join(folder, name)  # noqa: PTH118
                for name in names
                if name.startswith("test") and name.endswith(".py")
            ]
            if len(found) > _MOST_FILES:
                break
    return found[:_MOST_FILES]


def _imports(path: str) -> "set[str]":
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            text = file.read(1 << 20)
    except OSError:
        return set()
    return imports_in(text)


def imports_in(text: str) -> "set[str]":
    """Return the modules that a program imports."""
    found = set()
    for one, several in _IMPORT.findall(text):
        found |= {part.split()[0] for part in (one or several).split(",") if part.split()}
    return found


def replaced(before: "list[tuple[Any, str, Any]]", own: "list[str] | tuple[str, ...]" = ()) -> str:
    """Return which function of the library was replaced by one of the code under test; `own`: files that may do that."""
    for where, name, value in before:
        now = vars(where).get(name)
        each = getattr(now, "__func__", getattr(now, "func", now))
        called = getattr(type(each), "__call__", None)  # noqa: B004  # of a kind of object that can be called
        code = getattr(each, "__code__", getattr(called, "__code__", None))
        if now is value or code is None or code.co_filename.startswith(("<", _LIBRARY, *own)):
            continue
        if not by_tests(code.co_filename):
            return getattr(where, "__name__", "") + "." + name + " was replaced"
    return ""


def tell(had_session: bool, status: int) -> None:
    """Tell the parent how the run ended, if it may be believed."""
    if RUN.in_program:
        RUN.judged, RUN.status = True, RUN.status or status
    else:
        send(b"%d %d %d" % (had_session, status, RUN.passed))


def send(said: bytes) -> None:
    """Tell the parent, once, what is to be said, or how the run was changed."""
    teller, RUN.teller = RUN.teller, None
    if teller is not None:
        teller.send(b"tampered " + RUN.why.encode() if RUN.why else said)


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
    said, code = ended(reading, status)
    if not said.startswith(secret):
        if code == 0:
            say("the run of the tests ended before it was over", ENDED_EARLY)
        end(code)
    said = said[len(secret) :].split(secret)[0]  # a child of the child may have said more
    if said.startswith(b"tampered "):
        say(said[len(b"tampered ") :].decode(errors="replace"), TAMPERED)
    had_session, at_end, passed = said.split()
    end(code if had_session == b"0" else int(at_end) or code, int(passed))
