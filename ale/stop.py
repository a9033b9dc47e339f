"""Ctrl-C as a request: the first asks the run to save and end, the second interrupts at once.

Entered by `ale train` around the loop, which polls `requested` between steps. Main thread only (signals).
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Self

__all__ = ["StopRequest"]


class StopRequest:
    """A flag that SIGINT and SIGTERM set; leaving the context restores the former handlers."""

    def __init__(self, announce: Callable[[str], None]) -> None:
        self.requested = False
        self._announce = announce
        self._former: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._former[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        self._announce("Stopping after this step and saving; press Ctrl-C again to abort without saving.")
