"""Gives handlers of the work's no frame: a signal's is the test's that it interrupts, and Python tells nobody who reads it.

The functions that hand frames out, and the one that would make them anew, are replaced by ones that ask `work_fence` who
acts. What they replace is in frames of generators alone, which nobody reads unseen. Runs in Pythons from 3.8 on.
"""

import _imp
import _signal  # type: ignore[import-not-found]

import work_fence  # type: ignore[import-not-found]

if False:  # typing of newer Pythons
    from collections.abc import Callable
    from typing import Any

_BOUND = ("_imp", "_signal", "posix", "_posixsubprocess")
"""Modules in C some of whose functions are replaced here or in `starts_rock`."""


def hidden(act: "Callable[..., Any]") -> "Callable[..., Any]":
    """Return a function that does what `act` does and through which nobody reaches `act`."""

    def serve() -> "Any":
        done = None  # type: tuple[Any, BaseException | None] | None
        while True:
            arguments, more = yield done
            try:
                done = act(*arguments, **more), None
            except BaseException as error:  # noqa: BLE001  # for the caller
                done = None, error

    free = [serve() for _ in range(32)]  # calls at once, by threads and within one another
    for each in free:
        next(each)

    def call(*arguments: "Any", **more: "Any") -> "Any":
        serving = free.pop()
        try:
            result, error = serving.send((arguments, more))
        finally:
            free.append(serving)
        if error is not None:
            raise error
        return result

    return call


def made_again(name: object) -> str:
    """Return what is wrong if the work makes a module in C: one that is bound is not made once more."""
    last = str(name).rpartition(".")[2]
    return "it loads " + last + " once more" if last in _BOUND and work_fence.work_acts() else ""


def bound_signals(end: "Callable[[str], None]") -> None:
    """Bound the handlers that are set from now on; `end` is told of a module that is made once more, and never returns."""
    signal, getsignal, create = _signal.signal, _signal.getsignal, _imp.create_builtin

    def set_handler(number: int, handler: "Any") -> "Any":
        mine = callable(handler) and work_fence.handles_for_work(handler)
        return _shown(signal(number, _frameless(handler) if mine else handler))

    def create_builtin(spec: "Any") -> "Any":
        if made_again(getattr(spec, "name", "")):
            end(made_again(spec.name))
        return create(spec)

    vars(_signal).update(signal=hidden(set_handler), getsignal=hidden(lambda each: _shown(getsignal(each))))
    vars(_imp).update(create_builtin=hidden(create_builtin))


def _shown(handler: "Any") -> "Any":
    return getattr(handler, "rock_handler", handler)


def _frameless(handler: "Any") -> "Any":
    def handle(number: int, frame: object) -> "Any":
        return handler(number, None)

    handle.rock_handler = handler  # type: ignore[attr-defined]
    return handle
