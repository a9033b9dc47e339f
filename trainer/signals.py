"""Who gets SIGTERM and SIGINT while other libraries start: the command line's own handlers, and nobody else.

Ray takes SIGTERM twice as it starts, in Python and below it (absl's failure handler, which aborts), and starts its
daemons in our process group, where a signal to the group ends them before we have saved.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["held", "ours_while_ray_starts"]

_ASKS_TO_STOP = (signal.SIGINT, signal.SIGTERM)
_starts_daemons = False


def _apart_from_us() -> None:
    """Give a daemon of Ray a session of its own, as the ROCK server has, and signals that reach it."""
    if _starts_daemons:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ASKS_TO_STOP)


os.register_at_fork(after_in_child=_apart_from_us)


@contextmanager
def held() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the body is done. Threads that it starts never get them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ASKS_TO_STOP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def ours_while_ray_starts() -> Iterator[None]:
    """Start Ray in the body: its daemons are out of reach of signals to our group, and our handlers stay.

    What comes meanwhile waits. In a thread that is not the main one there are no handlers to keep.
    """
    global _starts_daemons
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kept = {number: signal.getsignal(number) for number in _ASKS_TO_STOP}
    with held():
        _starts_daemons = True
        try:
            yield
        finally:
            _starts_daemons = False
            for number, handler in kept.items():
                if handler is not None:  # one that was not set from Python cannot be set from it
                    signal.signal(number, handler)
