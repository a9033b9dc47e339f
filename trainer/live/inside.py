"""What goes on inside a process of a run: where its tasks and threads wait, and for whom. Told by the process itself.

Nothing is noted while work goes on: who asks has the coroutines and frames read as they stand.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import msgspec

__all__ = ["At", "Wait", "logged", "places", "reader", "stacks"]

_OURS = ("agent_runtime", "ale", "rock_env", "sandboxes", "trainer")
_WAITED_FOR = {
    "trainer.processes.asked": "a sampler's answer",
    "trainer.rollout.sampler": "its batch: the other rollouts of it, or the sampler's answer",
    "trainer.samplers.threaded": "the engine's next tokens",
    "trainer.reward": "a reward worker's answer",
    "rock_env.client": "ROCK's answer",
    "rock_env.env_workers": "its environment",
    "agent_runtime.gateway": "an answer of the gateway",
}
"""By module, or what it lies in, whom a coroutine that has come there waits for."""
_NOT_WORK = ("trainer.live.door", "trainer.live.watch")
_WAITS, _PLACES, _NAMES, _THREADS = 6, 6, 5, 12
"""Most that are told of a process: places where tasks wait, places on the way to one, names of tasks, stacks of threads."""
_STACK_CHARS, _LOG_BYTES, _LOG_LINES, _LINE_CHARS = 4000, 4096, 5, 300
_RAY_SAYS = (":job_id:", ":actor_name:", ":task_name:")


class Wait(msgspec.Struct):
    """Tasks that wait at the same place."""

    what: str
    """Whom or what they wait for; the place itself where that is not known."""
    place: str
    count: int
    names: list[str]
    """Of some: the ids of rollouts, where a task plays one."""
    stack: list[str]
    """The way to the place, of one of them, the outermost first."""


class At(msgspec.Struct):
    """One answer of a process."""

    pid: int
    waits: list[Wait]
    threads: dict[str, str]
    """By name, where a thread is in code of ours."""
    log: list[str]
    """Its last lines on stderr, where that is a file."""
    stacks: dict[str, str] = {}
    """By name, all of a thread's stack, where that was asked for."""


class _Place(NamedTuple):
    module: str
    function: str
    line: int

    def __str__(self) -> str:
        return f"{self.module}.{self.function} (line {self.line})"

    @property
    def is_ours(self) -> bool:
        return self.module.partition(".")[0] in _OURS


def reader() -> Callable[[bool], At]:
    """Return what tells of this process: of its threads, and where called on an event loop of the loop's tasks."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None

    def tell(whole: bool) -> At:
        waits = [*islice(_waits(loop), _WAITS)] if loop else []
        return At(os.getpid(), waits, places(), logged(), stacks() if whole else {})

    return tell


def stacks() -> dict[str, str]:
    """Return by name the whole stack of the main thread, and of each other that is in code of ours."""
    found: dict[str, str] = {}
    main = _named(threading.main_thread().name, threading.main_thread().ident)
    for name, frame in sorted(_threads(), key=lambda each: each[0] != main):
        if len(found) < _THREADS and (_ours(frame) or name == main):
            stack = "".join(traceback.format_stack(frame))[-_STACK_CHARS:]
            found[name] = stack.encode(errors="replace").decode()  # a path need not be UTF-8
    return found


def places() -> dict[str, str]:
    """Return by name the innermost place of ours that each thread is in; nothing of a thread that works for nobody."""
    return {name: str(ours[0]) for name, frame in _threads() if (ours := _ours(frame))}


def _ours(frame: FrameType) -> list[_Place]:
    """Return the places of ours on a stack, the innermost first; none of what only watches."""
    ours = [place for place in _up(frame) if place.is_ours]
    return ours if ours and not ours[-1].module.startswith(_NOT_WORK) else []


def logged() -> list[str]:
    """Return the last lines that this process wrote to stderr, where that is a file."""
    try:
        if not stat.S_ISREG(os.fstat(2).st_mode):
            return []
        with Path("/proc/self/fd/2").open("rb") as file:
            file.seek(max(0, os.fstat(2).st_size - _LOG_BYTES))
            lines = file.read(_LOG_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line[:_LINE_CHARS] for line in lines if line.strip() and not line.startswith(_RAY_SAYS)][
        -_LOG_LINES:
    ]


def _threads() -> Iterator[tuple[str, FrameType]]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        yield _named(names.get(ident, "thread"), ident), frame


def _named(name: str, ident: int | None) -> str:
    return f"{name} ({ident})"


def _up(frame: FrameType | None) -> Iterator[_Place]:
    while frame is not None:
        yield _Place(frame.f_globals.get("__name__", "?"), frame.f_code.co_qualname, frame.f_lineno)
        frame = frame.f_back


def _waits(loop: asyncio.AbstractEventLoop) -> Iterator[Wait]:
    """Yield where the tasks of a loop wait, those most wait at first; of tasks that wait at a known place, or are named."""
    found: dict[tuple[str, str], Wait] = {}
    for task in asyncio.all_tasks(loop):
        stack = [place for place in _down(task.get_coro()) if place.is_ours]
        what = next((said for place in reversed(stack) if (said := _waited_for(place))), "")
        is_named = not task.get_name().startswith("Task-")
        if not stack or not (what or is_named):
            continue
        place = str(stack[-1])
        wait = found.setdefault(
            (what, place), Wait(what or place, place, 0, [], [str(each) for each in stack[-_PLACES:]])
        )
        wait.count += 1
        if is_named and len(wait.names) < _NAMES:
            wait.names.append(task.get_name().encode(errors="replace").decode())
    yield from sorted(found.values(), key=lambda wait: -wait.count)


def _down(coroutine: Any) -> Iterator[_Place]:
    """Yield where a coroutine is, from the outermost of those that await each other to the innermost."""
    while coroutine is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(coroutine, f"{kind}_frame")), "")
        frame = getattr(coroutine, f"{kind}_frame", None)
        if frame is None:
            return
        yield _Place(frame.f_globals.get("__name__", "?"), frame.f_code.co_qualname, frame.f_lineno)
        coroutine = getattr(coroutine, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)


def _waited_for(place: _Place) -> str:
    return next(
        (said for module, said in _WAITED_FOR.items() if f"{place.module}.".startswith(f"{module}.")),
        "",
    )
