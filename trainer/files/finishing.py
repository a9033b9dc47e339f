"""One thing at a time that is finished on a thread, beside what goes on.

A run finishes its checkpoints so. What the thread raises waits for whoever asks next: no error is lost, none told twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

__all__ = ["Finishing"]


class Finishing:
    """Called on one thread, that of the run's loop."""

    def __init__(self) -> None:
        self._under_way: Future[None] | None = None

    def begin(self, finish: Callable[[], None]) -> None:
        """Call `finish` on a thread. What began before is waited for, and what it raised is raised here, first."""
        self.wait()
        ended: Future[None] = Future()
        threading.Thread(target=_run, args=(finish, ended), name="finishing", daemon=True).start()
        self._under_way = ended

    def wait(self) -> None:
        """Wait until nothing is under way. Raise what it raised."""
        if self._under_way is None:
            return
        try:
            self._under_way.result()
        finally:
            if self._under_way.done():  # else somebody interrupts the wait, and who closes the run waits on
                self._under_way = None

    def check(self) -> None:
        """Raise what it raised, if it has ended; wait for nothing."""
        if self._under_way is not None and self._under_way.done():
            self.wait()


def _run(finish: Callable[[], None], ended: Future[None]) -> None:
    try:
        finish()
    except BaseException as error:  # noqa: BLE001 - raised where it is asked for
        ended.set_exception(error)
    else:
        ended.set_result(None)
