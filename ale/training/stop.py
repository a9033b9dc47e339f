"""Ctrl-C and SIGTERM as a request: the first asks the run to save and end. A second Ctrl-C interrupts at once.

SIGTERM may come any number of times: whoever sends it has SIGKILL for a process that takes too long. Main thread only.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Self

__all__ = ["STOPPING", "StopRequest", "sigterm_is_ctrl_c"]

STOPPING = "Stopping after this step or warm-up epoch and saving; press Ctrl-C again to abort without saving."


def sigterm_is_ctrl_c() -> None:
    """Let SIGTERM do what Ctrl-C does, for commands without handlers of their own."""

    def handle(number: int, frame: FrameType | None) -> None:
        as_ctrl_c = signal.getsignal(signal.SIGINT)  # asyncio has one of its own while it runs
        if callable(as_ctrl_c):
            as_ctrl_c(signal.SIGINT, frame)
        else:
            raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, handle)


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
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return
        self.requested = True
        if self._announce:
            # Not print: a handler may interrupt one, and Python's buffers cannot be entered twice.
            os.write(sys.stderr.fileno(), f"{STOPPING}\n".encode())
