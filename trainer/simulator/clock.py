"""An event loop in virtual time: where nothing is ready it goes on to its next timer at once instead of sleeping.

One thread, no file descriptor, no clock of the machine: what runs on it is deterministic. Used by the simulator and tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from trainer.errors import TrainerError

__all__ = ["Stalled", "VirtualLoop", "run_virtually"]

_Result = TypeVar("_Result")
_RESOLUTION_S = 1e-6
"""Timers no further apart are due together: above the rounding of times up to centuries."""


class Stalled(TrainerError, RuntimeError):
    """Everybody waits for something that nobody will do: a reply was lost, or two wait for each other."""


class VirtualLoop(asyncio.BaseEventLoop):
    """`time()` is virtual, in seconds. It takes no sockets, signals or threads."""

    def __init__(self, on_event: Callable[[int], None] = lambda turn: None, *, begin_s: float = 0.0) -> None:
        """`on_event(n)` is called before the n-th round of callbacks; what it raises ends the loop there."""
        super().__init__()
        self._now = begin_s
        self._turn = 0
        self._on_event = on_event
        self._clock_resolution = _RESOLUTION_S
        self._selector = self  # what the base class asks for ready files, and to wait

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """Go on to the next timer. Raise `Stalled` where there is none."""
        if timeout is None:
            raise Stalled(
                f"the simulation stands still at {self._now:.3f} s: got tasks that wait and no timer, expected a reply or a "
                "timer for each. Something waits for what nobody does: look for a reply that was lost."
            )
        if timeout > 0:
            timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
            self._now = max(self._now, timers[0].when())
        self._turn += 1
        self._on_event(self._turn)
        return []

    def _process_events(self, event_list: list[Any]) -> None:
        """Nothing is ever ready but callbacks."""

    def _write_to_self(self) -> None:
        """Nobody waits for a file: there is nobody to wake."""


def run_virtually(main: Coroutine[Any, Any, _Result], loop: VirtualLoop | None = None) -> _Result:
    """Run to its end in virtual time; what is left is cancelled. Raise `Stalled`, and what `main` raises."""
    with asyncio.Runner(loop_factory=lambda: loop or VirtualLoop()) as runner:
        return runner.run(main)
