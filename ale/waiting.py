"""What a command waits for, said on standard error once it has waited 5 s: a line that counts in a terminal, else few lines.

    with waiting_for("the server's answer") as waiting:
        ...
        waiting.now("the 3 episodes")

Of a block inside another one only its own is said. What is written meanwhile takes the place of a terminal's line. A
command's first block may count from the process's start: its imports are waited for, too.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ale.terminal import redraw
from rock_env.telemetry.shown import VisibleStream
from rock_env.threads import completed
from trainer.signals import held

__all__ = ["LIBRARIES", "Waiting", "Watch", "awaited", "unsaid", "waiting_for"]

LIBRARIES = "PyTorch and Ray to be imported"
T = TypeVar("T")

_FIRST_S, _MOST_APART_S, _LOOK_S = 5.0, 300.0, 1.0
_What = str | Callable[[], str]


class Waiting:
    """One thing that is waited for."""

    def __init__(self, what: _What, clock: Callable[[], float], waited_s: float = 0.0) -> None:
        self._clock = clock
        self.now(what)
        self._since -= waited_s
        self.due_s = max(_FIRST_S, waited_s)

    def now(self, what: _What) -> None:
        """Wait for `what` from here on; its seconds begin anew. A function is asked whenever it is said."""
        self._what, self._since = what, self._clock()
        self.due_s = _FIRST_S
        """After so many seconds it is said next, where there is no terminal."""

    @property
    def seconds(self) -> float:
        """Return how long it has been waited for."""
        return self._clock() - self._since

    def __str__(self) -> str:
        what = self._what if isinstance(self._what, str) else self._what()
        return f"waiting for {what} ({self.seconds:.0f} s)"


class Watch:
    """All that a process waits for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._waits: list[Waiting] = []
        self._shown = False
        self._silent = 0

    @contextmanager
    def waiting_for(self, what: _What, waited_s: float = 0.0) -> Iterator[Waiting]:
        """Wait for something in the block, `waited_s` having gone by before; `look` says so."""
        waiting = Waiting(what, self._clock, waited_s)
        with self._lock:
            self._waits.append(waiting)
        try:
            yield waiting
        finally:
            with self._lock:
                self._waits.remove(waiting)
                for outer in self._waits[-1:]:
                    outer.due_s = outer.seconds + _FIRST_S
                self.clear()

    @contextmanager
    def unsaid(self) -> Iterator[None]:
        """Say nothing in the block: something else shows what goes on."""
        with self._lock:
            self._silent += 1
            self.clear()
        try:
            yield
        finally:
            with self._lock:
                self._silent -= 1

    def look(self) -> None:
        """Say what is waited for, if it is time."""
        with self._lock:
            if not self._waits or self._silent:
                return
            waiting = self._waits[-1]
            if sys.stderr.isatty():
                if waiting.seconds >= _FIRST_S:
                    redraw(f"{waiting}")
                    self._shown = True
            elif waiting.seconds >= waiting.due_s:
                waiting.due_s += min(waiting.due_s, _MOST_APART_S)
                sys.stderr.write(f"{waiting}\n")
                sys.stderr.flush()

    def clear(self) -> None:
        """Take a terminal's line away."""
        with self._lock:
            if self._shown:
                self._shown = False
                redraw("")

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Look every second in the block. One thread does, however many blocks there are."""
        with self._lock:
            first = not any(thread.name == _THREAD for thread in threading.enumerate())
        if not first:
            yield
            return
        over = threading.Event()

        def keep_looking() -> None:
            while not over.wait(_LOOK_S):
                self.look()

        streams = [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, VisibleStream)]
        for stream in streams:
            stream.inner = _Above(stream.inner, self)
        thread = threading.Thread(target=keep_looking, name=_THREAD, daemon=True)
        with held():
            thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            for stream in streams:
                stream.inner = stream.inner.inner


class _Above:
    """A stream whose text takes the place of the line that says what is waited for."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self.inner, self._watch = inner, watch

    def write(self, text: str) -> int:
        self._watch.clear()
        return int(self.inner.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


_THREAD = "what is waited for"
_WATCH = Watch()
unsaid = _WATCH.unsaid


@contextmanager
def waiting_for(what: _What, *, from_start: bool = False) -> Iterator[Waiting]:
    """Say in the block what this process waits for, from 5 s on; of those since the process began, where it says so."""
    waited_s = _age_s() if from_start else 0.0
    with _WATCH.looking(), _WATCH.waiting_for(what, waited_s) as waiting:
        yield waiting


def _age_s() -> float:
    """Return for how long this process has run; 0 where the system does not say."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def awaited(coroutine: Coroutine[Any, Any, T], what: _What) -> T:
    """Run a coroutine to its end, and say from 5 s on what this process waits for. Return its result."""
    with waiting_for(what):
        return completed(coroutine)
