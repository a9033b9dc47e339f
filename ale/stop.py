"""Ctrl-C as a request: the first asks the run to save and end, the second interrupts at once.

Entered by `ale train` around the loop, which polls `requested` between steps. Main thread only (signals).
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Self

__all__ = ["STOPPING", "StopRequest"]

STOPPING = "Stopping after this step and saving; press Ctrl-C again to abort without saving."


class StopRequest:
    """A flag that SIGINT and SIGTERM set; leaving the context restores the former handlers."""

    def __init__(self, *, announce: bool) -> None:
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
        if self._announce:
            # Not print: a handler may interrupt one, and Python's buffers cannot be entered twice.
            os.write(sys.stderr.fileno(), f"{STOPPING}\n".encode())
