"""The hidden calls' run: the text of this file becomes a program in the grade's box, and is imported by nothing there.

It holds arguments and no results, so the function's code, which runs in the same process, can find no answer to return. It
says each result at once, so that what comes later cannot take it back, and ends without running anybody's exit handlers.
What it says is judged outside: see `grade`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

__all__ = ["run"]

CPU_S = 5
"""Processor time of all calls together: a loop without end costs that, however busy the machine is."""
MAX_RESULT_CHARS = 20_000
"""Of one result's text; the longest right one has some hundred."""
MAX_DEPTH = 20
CANARY = "canary"


def run(token: str, source: str, name: str, calls: Sequence[tuple[str, str, str]], exit_code: int) -> None:
    """Load the source and make the calls (label, kind, JSON of the arguments); each line said begins with the token."""
    sys.path.pop(0)  # this file's folder
    os.unlink(sys.argv[0])  # noqa: PTH108  as the token is in it
    dump, load, leave, plain, own = json.dumps, json.loads, os._exit, _plain, _canary
    say = _mouth(token)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    say("ready")
    function = _loaded(source, name)
    if isinstance(function, str):
        say(function)
        leave(exit_code)
    for label, kind, arguments in calls:
        called = own if kind == CANARY else function
        try:
            text = dump(plain(called(*load(arguments)), MAX_DEPTH), sort_keys=True)
        except BaseException as error:  # noqa: BLE001  named boundary: the agent's function
            say(f"raised {label} {type(error).__name__}")
            continue
        say(f"returned {label} {text}" if len(text) <= MAX_RESULT_CHARS else f"raised {label} TooLong")
    say("end")
    leave(exit_code)


def _loaded(source: str, name: str) -> Callable[..., Any] | str:
    """Return the function, or what to say if there is none."""
    module = ModuleType("answer")
    sys.modules["answer"] = module
    try:
        exec(compile(source, "answer.py", "exec", dont_inherit=True), vars(module))
        function = vars(module).get(name)
    except BaseException as error:  # noqa: BLE001  named boundary: the agent's source
        return f"broken {type(error).__name__}"
    return function if callable(function) else "broken NoSuchFunction"


def _plain(value: Any, depth: int) -> Any:
    """Return what a value of plain data holds, a tuple as a list. Raise `TypeError` for any other type.

    Of a subclass (`Counter`, `OrderedDict`, `IntEnum`) it is what its base holds, taken by the base's own methods.
    """
    kind = type(value)
    if value is None or kind is bool:
        return value
    if issubclass(kind, int):
        return int.__pos__(value)
    if issubclass(kind, str):
        return str.__getitem__(value, slice(None))
    for base in (list, tuple):
        if issubclass(kind, base) and depth:
            return [_plain(item, depth - 1) for item in base.__iter__(value)]
    if issubclass(kind, dict) and depth and all(issubclass(type(key), str) for key in dict.__iter__(value)):
        return {_plain(key, depth): _plain(item, depth - 1) for key, item in dict.items(value)}
    raise TypeError(kind.__name__)


def _canary(numbers: list[int]) -> list[int]:
    """Return what the host can foretell: where it comes back otherwise, somebody changed this process."""
    return [number + 1 for number in reversed(numbers)]


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
