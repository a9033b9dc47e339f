"""Ends the process of an episode before an answer can make its library run code.

Libraries hand answers to `eval`: what runs there could replace the scorer. Python reports such acts as audit events
(PEP 578), and a hook cannot be taken away again. It lets pass what honest play raises and ends the process on all else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["HARMLESS", "AnswerGuard"]

HARMLESS = frozenset({"builtins.id"})
"""The audit events of honest play, in all ids that are hosted: tests/contract/answer_events.py lists them."""


class AnswerGuard:
    """The hook of one process. Armed before its first action is played, for the rest of its life."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        """`tell` sends the name of the event to whoever started this process, just before it ends."""
        self._tell = tell
        self._armed = False
        self._ending = False

    def arm(self) -> None:
        """Watch from now on."""
        if not self._armed:
            self._armed = True
            sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in HARMLESS or self._ending:
            return
        self._ending = True
        try:
            self._tell(event)
        finally:
            os._exit(1)
