"""The hidden tests' run: the text of this file becomes a program in the grade's box, and is imported by nothing there.

`carry_out` makes the calls of tests that were split (see `steps`) and says what came of each; nothing here knows what
should. `run` runs whole tests. It loads pytest before anything of the project, so that no module of the project stands in
for one of Python's. Both say each outcome at once, so that what comes later cannot take it back, and end without running
anybody's exit handlers. Neither can know whether the project's code, which runs in the same process, lies to it.
"""

from __future__ import annotations

import builtins
import os
import resource
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from json.encoder import encode_basestring_ascii
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

__all__ = ["carry_out", "run"]

CPU_S = 30
"""Processor time the tests may use: a loop without end costs that, however busy the machine is."""
GUARDED = ("_pytest", "pluggy", "pytest", "unittest")
DEEPEST = 50
"""A value nested deeper is not plain."""
MAX_SAID_CHARS = 1 << 13
"""Of one outcome's text; the longest right one has some hundred."""
UNUSED = "doctest faulthandler junitxml legacypath pastebin setuponly setupplan stepwise"
"""Plugins of pytest that no hidden test needs; without them it starts faster."""


def run(
    token: str,
    folder: str,
    packages: list[tuple[str, str]],
    files: list[tuple[str, bytes]],
    exit_code: int,
    values: str,
) -> None:
    """Run the test files (path, source) on the packages (project's folder, name); each line said begins with the token.

    The sources are on the disk only while pytest collects them, and the packages are imported before: what the project's
    code could read there are the answers. `values` names the module in which tests find `same`, until they are collected.
    """
    sys.path.pop(0)  # this file's folder
    os.unlink(sys.argv[0])  # noqa: PTH108  as said above, and the token is in it
    import pytest  # first of all: an import error here is not the project's

    guarded = dict(_callables())
    modules = {name: module for name, module in sys.modules.items() if name != "__main__"}
    say = _mouth(token)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    say("ready")
    leave, callables, start = os._exit, _callables, pytest.main
    same = _same(say)
    _load(packages, say, exit_code)
    sys.modules[values] = ModuleType(values)
    sys.modules[values].same = same  # type: ignore[attr-defined]
    paths = [Path(folder, name) for name, _ in files]
    for path, (_, source) in zip(paths, files, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source)
    arguments = ["-q", "--import-mode=importlib", "--noconftest", "--capture=no", "--assert=plain", "--tb=no"]
    arguments += [f"-c{folder}/pytest.ini", f"--rootdir={folder}", "-pno:cacheprovider"]
    arguments += [*(f"-pno:{name}" for name in UNUSED.split()), *map(str, paths)]
    status = start(arguments, plugins=[_Listener(say, paths, values)])
    now = dict(callables())
    for name, thing in guarded.items():
        if now.get(name) is not thing:
            say(f"changed {name}")
    for name, module in modules.items():
        if sys.modules.get(name) is not module:
            say(f"changed sys.modules[{name!r}]")
    say(f"end {int(status)}")
    leave(exit_code)


def carry_out(
    token: str,
    packages: list[tuple[str, str]],
    files: list[tuple[list[str], list[list[str]]]],
    exit_code: int,
) -> None:
    """Carry out the steps of each file, and each test's on a copy of what its file has; each line begins with the token.

    A step is an expression or a statement. All are treated alike, also after one that raised: whether that was wanted, and
    what a value is compared with, is known outside. Last comes where the project's exceptions are found.
    """
    sys.path.pop(0)  # this file's folder
    os.unlink(sys.argv[0])  # noqa: PTH108  as the token is in it
    say, leave, catalogue = _mouth(token), os._exit, _exceptions
    outcome = _outcomes()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    say("ready")
    _load(packages, say, exit_code)
    for head, tests in files:
        names: dict[str, Any] = {"__name__": "steps"}
        for step in head:
            say(outcome(step, names))
        for steps in tests:
            own = dict(names)
            for step in steps:
                say(outcome(step, own))
    say(catalogue([name for _, name in packages]))
    say("end")
    leave(exit_code)


def _outcomes() -> Callable[[str, dict[str, Any]], str]:
    """Return what carries out a step with some names and says what came of it: `value ID JSON` or `raised JSON`."""
    quote, name, kept = encode_basestring_ascii, _name, []

    def other(value: object) -> str:
        return f'["o",["{id(value):x}",{quote(name(type(value)))},{_truth(value)}]]'

    plain = _plain(other)

    def outcome(step: str, names: dict[str, Any]) -> str:
        try:
            try:
                code = compile(step, "step", "eval", dont_inherit=True)
            except SyntaxError:
                code = compile(step, "step", "exec", dont_inherit=True)
            value = eval(code, names)
            kept.append(value)  # so that no other object gets its identity
            said = f"value {id(value):x} {plain(value)}"
        except BaseException as error:  # noqa: BLE001  named boundary: the project's code
            kinds = ",".join([quote(name(kind)) for kind in type(error).__mro__])
            said = f"raised [[{kinds}],{quote(_text(error))}]"
        return said if len(said) <= MAX_SAID_CHARS else 'raised [["TooLong"],""]'

    return outcome


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  named boundary: the project's code
        return ""


def _truth(value: object) -> int:
    try:
        return 1 if value else 0
    except BaseException:  # noqa: BLE001  named boundary: the project's code
        return 0


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _exceptions(packages: list[str]) -> str:
    """Return as JSON the name of each exception class of the project, by each name that it is found under."""
    found = [
        f"{encode_basestring_ascii(f'{module}.{name}')}: {encode_basestring_ascii(_name(thing))}"
        for module in list(sys.modules)
        if module.partition(".")[0] in packages
        for name, thing in list(vars(sys.modules[module]).items())
        if isinstance(thing, type) and issubclass(thing, BaseException)
    ]
    return f"exceptions {{{','.join(found)}}}"


def _load(packages: list[tuple[str, str]], say: Callable[[str], None], exit_code: int) -> None:
    """Import the packages, or say why not and leave. Before `found` is said nothing of the project has run."""
    leave = os._exit
    for look, then in ((_hidden_by_another, "found"), (_not_importable, "loaded")):
        for package in packages:
            if wrong := look(package):
                say(wrong)
                leave(exit_code)
        say(then)


def _hidden_by_another(where: tuple[str, str]) -> str:
    """Make a package importable and return what to say if another of its name comes first. Runs nothing of it."""
    place = os.path.join(os.getcwd(), where[0])  # noqa: PTH118, PTH109  a link must not be resolved
    if place not in sys.path:
        sys.path.append(place)  # last: none of its modules stands in for one of Python's or pytest's
    found = find_spec(where[1])
    mine = found is not None and (found.origin or "").startswith(f"{place}/")
    return "" if mine else f"elsewhere {where[1]}"


def _not_importable(where: tuple[str, str]) -> str:
    try:
        import_module(where[1])
    except BaseException as error:  # noqa: BLE001  named boundary: import of the project
        return f"broken {where[1]} ({type(error).__name__})"
    return ""


def _mouth(token: str) -> Callable[[str], None]:
    """Take standard output away from everybody else and return what writes lines to it."""
    out = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    write = os.write

    def say(line: str) -> None:
        write(out, f"{token} {line}\n".encode(errors="backslashreplace"))

    return say


def _same(say: Callable[[str], None]) -> Callable[..., None]:
    """Return what says the two sides of a comparison, by its number. What is no plain value is compared here."""
    encode = _plain(_refused)

    def plain(side: object) -> str:
        try:
            return encode(side)
        except _NotPlain:
            return ""

    def same(number: int, value: object, *expected: object) -> None:
        said = [plain(side) for side in (value, *expected)]
        say(f"value {number} [{','.join(said) if all(said) else ''}]")
        if not all(said) and expected and (said[1] or not expected[0] == value):
            raise AssertionError

    return same


def _refused(value: object) -> str:
    raise _NotPlain


def _plain(other: Callable[[object], str]) -> Callable[[object], str]:
    """Return what writes a plain value as JSON, of a subclass what its base has, and what `other` says of any other value.

    It asks no object what it is or equals: it looks at types, and takes contents by the methods of Python's own types.
    """
    quote, floats, numbers = encode_basestring_ascii, float.__repr__, _number
    views: tuple[type, ...] = (type({}.keys()), type({}.items()))

    def sequence(kind: str, items: Iterator[Any], depth: int) -> str:
        return f'["{kind}",[{",".join([encode(item, depth) for item in items])}]]'

    def encode(value: Any, depth: int = 0) -> str:
        kind = type(value)
        if depth > DEEPEST:
            raise _NotPlain
        if value is None:
            return '["n",0]'
        if kind is bool:
            return f'["B",{1 if value else 0}]'
        if issubclass(kind, int):
            return f'["i","{int.__format__(value, "x")}"]'
        if issubclass(kind, float):
            return f'["f","{floats(value)}"]'
        if issubclass(kind, str):
            return (
                f'["s",{quote(str.__str__(value) if kind is str else str.__getitem__(value, slice(None)))}]'
            )
        if issubclass(kind, bytes):
            return f'["b","{bytes.hex(value)}"]'
        if issubclass(kind, list):
            return sequence("l", list.__iter__(value), depth + 1)
        if issubclass(kind, tuple):
            return sequence("t", tuple.__iter__(value), depth + 1)
        if issubclass(kind, set):
            return sequence("S", set.__iter__(value), depth + 1)
        if issubclass(kind, frozenset):
            return sequence("S", frozenset.__iter__(value), depth + 1)
        if issubclass(kind, dict):
            pairs = [(key, dict.__getitem__(value, key)) for key in dict.__iter__(value)]
            return f'["d",[{",".join([f"[{encode(key, depth + 1)},{encode(each, depth + 1)}]" for key, each in pairs])}]]'
        if kind in views:
            return sequence("S", iter(value), depth + 1)
        return numbers(kind, value) or other(value)

    return encode


def _number(kind: type, value: Any) -> str:
    """Return a fraction or a decimal number as JSON; an empty text for anything else."""
    if "fractions" in sys.modules and kind is sys.modules["fractions"].Fraction:
        return f'["q",["{value.numerator:x}","{value.denominator:x}"]]'
    if "decimal" in sys.modules and kind is sys.modules["decimal"].Decimal:
        return f'["D","{value}"]'
    return ""


class _NotPlain(Exception):
    pass


class _Listener:
    """Takes the sources away once pytest has them, and says each test's outcome when it has ended."""

    def __init__(self, say: Callable[[str], None], paths: list[Path], values: str) -> None:
        self._say = say
        self._paths = paths
        self._values = values
        self._worst = "passed"

    def pytest_collection_finish(self) -> None:
        for path in self._paths:
            path.unlink()
        sys.modules.pop(self._values, None)

    def pytest_runtest_logstart(self) -> None:
        self._worst = "passed"

    def pytest_runtest_logreport(self, report: Any) -> None:
        if self._worst != "failed" and report.outcome != "passed":
            self._worst = report.outcome

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._say(f"{self._worst} {nodeid}")

    def pytest_collectreport(self, report: Any) -> None:
        if report.outcome == "failed":
            self._say(f"broken {report.nodeid}")


def _callables() -> Iterator[tuple[str, object]]:
    """Yield by name what decides whether a test passes: functions, methods and classes of pytest, unittest and builtins."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in GUARDED]
    for module in (builtins, *modules):
        if isinstance(module, ModuleType):
            yield from _members(module.__name__, vars(module), classes=module is not builtins)


def _members(owner: str, members: Any, *, classes: bool) -> Iterator[tuple[str, object]]:
    for name, thing in tuple(members.items()):
        if isinstance(thing, FunctionType):
            yield f"{owner}.{name}", thing
            yield f"{owner}.{name}.__code__", thing.__code__
        elif isinstance(thing, type):
            yield f"{owner}.{name}", thing
            if classes and thing.__module__ == owner:
                yield from _members(f"{owner}.{name}", vars(thing), classes=False)
        elif isinstance(thing, property | classmethod | staticmethod) or (
            owner == "builtins" and callable(thing)
        ):
            yield f"{owner}.{name}", thing
