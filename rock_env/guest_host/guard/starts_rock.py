"""What a verifier's own program starts, and the work in its process, reads of the verifier's folders what its start names.

Landlock holds for one thread and what that starts. So each program is started by a thread that closes these folders first
(`walls_rock`): but for what the start names where the verifier's program starts it, but for what that program names, too,
where the work does. A fork that the work makes closes them in its child. Used by `main_rock`, in Pythons from 3.8 on.
"""

import os
import posix
import subprocess
import sys
from _thread import allocate_lock, get_ident, start_new_thread

import work_fence  # type: ignore[import-not-found]
from signals_rock import hidden, made_again  # type: ignore[import-not-found]
from walls_rock import close_held, named  # type: ignore[import-not-found]

if False:  # typing of newer Pythons
    from collections.abc import Callable
    from typing import Any

_STARTING = ("os.system", "os.posix_spawn")


def bound_starts(end: "Callable[[str], None]") -> None:
    """Bound what is started from now on; `end` is told of a start that goes round this and never returns."""
    if not hasattr(sys, "addaudithook"):
        return
    process, bounded = os.getpid(), set()  # type: int, set[int]
    system, spawn = _bound(os.system, _of_system, bounded), _bound(os.posix_spawn, _of_spawn, bounded)
    spawnp = _bound(os.posix_spawnp, _of_spawn, bounded)
    for where in (os, posix):
        vars(where).update(system=system, posix_spawn=spawn, posix_spawnp=spawnp)
    import _posixsubprocess

    fork_exec = _bound(_posixsubprocess.fork_exec, _of_fork_exec, bounded)
    vars(_posixsubprocess).update(fork_exec=fork_exec)
    if "_fork_exec" in vars(subprocess):
        vars(subprocess).update(_fork_exec=fork_exec)

    def hear(event: str, arguments: "Any") -> None:
        if event == "os.exec" and (os.getpid() != process or work_fence.work_acts()):
            _close(_names("execv", *_of_spawn(*arguments)))
        elif event in _STARTING and get_ident() not in bounded and work_fence.work_acts():
            end("it starts a program past the guard")
        elif event == "import" and made_again(arguments[0]):
            end(made_again(arguments[0]))

    sys.addaudithook(hear)
    os.register_at_fork(after_in_child=lambda: close_held(set()) if work_fence.work_acts() else None)


def _close(names: "set[str] | None") -> None:
    if names is not None:
        close_held(names)


def _names(
    by: str, words: "Any", folder: str, variables: "Any", descriptors: "set[int]", is_python: bool = False
) -> "set[str] | None":
    """Return what a start by a function may read, by who makes it; None is all."""
    said = [os.fsdecode(word) for word in words]
    found = named(said, folder, variables, descriptors)  # type: set[str] | None
    if not work_fence.verifier_starts(by):
        return {path for path in found or () if work_fence.is_told(path)}
    return None if is_python else found


def _of_system(command: "Any") -> "tuple[Any, ...]":
    return [command], os.getcwd(), dict(os.environ), {0}  # noqa: PTH109


def _of_spawn(path: "Any", words: "Any", variables: "Any" = None, **_: "Any") -> "tuple[Any, ...]":
    return list(words), os.getcwd(), _texts(variables), {0}  # noqa: PTH109


def _of_fork_exec(*arguments: "Any") -> "tuple[Any, ...]":
    words, kept, folder, pairs, stdin = (arguments[at] for at in (0, 3, 4, 5, 6))
    variables = None if pairs is None else dict(os.fsdecode(each).partition("=")[::2] for each in pairs)
    is_python = any(os.fsdecode(word) == "--multiprocessing-fork" for word in words)
    found = {*kept, stdin} if stdin >= 0 else {*kept, 0}
    return list(words), os.fsdecode(folder or os.getcwd()), _texts(variables), found, is_python  # noqa: PTH109


def _texts(variables: "Any") -> "dict[str, str]":
    if variables is None:
        return dict(os.environ)
    return {os.fsdecode(name): os.fsdecode(value) for name, value in variables.items()}


def _bound(start: "Any", told: "Callable[..., Any]", bounded: "set[int]") -> "Any":
    """Return a function that starts a program as `start` does, in its bounds; `told` says what its arguments name."""

    def begin(*arguments: "Any", **more: "Any") -> "Any":
        names = _names(start.__name__, *told(*arguments, **more))
        if names is None:
            return start(*arguments, **more)
        result, error = _apart(start, arguments, more, names, bounded)
        if error is not None:
            raise error
        return result

    return hidden(begin)


def _apart(
    start: "Any", arguments: "Any", more: "Any", names: "set[str]", bounded: "set[int]"
) -> "tuple[Any, BaseException | None]":
    """Call it in a thread that can read these alone; return its result, or what it raised."""
    done = []  # type: list[tuple[Any, BaseException | None]]
    over, last = allocate_lock(), allocate_lock()
    over.acquire()

    def run() -> None:
        me = get_ident()
        try:
            close_held(names)
            bounded.add(me)
            done.append((start(*arguments, **more), None))
        except BaseException as error:  # noqa: BLE001  # for the caller
            done.append((None, error))
        finally:
            bounded.discard(me)
            over.release()
        if any(
            callable(each) for each in arguments
        ):  # a child may be bound to its thread's end (`preexec_fn`)
            last.acquire()
            last.acquire()

    start_new_thread(run, ())
    over.acquire()
    return done[0]
