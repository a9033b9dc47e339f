"""What every conversation is made of: the prompt, the buffer it grows in, the messages that open a context."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

import numpy as np

from agent_runtime.agent import Reply
from agent_runtime.policy import Message
from agent_runtime.types import IntArray, TurnLabel

__all__ = ["Conversation", "Prompt", "TokenBuffer", "opening"]

FIRST_CAPACITY = 1024
"""Tokens; the buffer doubles from here, so appending stays linear in the number of tokens."""


class Prompt(NamedTuple):
    """One prompt: `ids` from the first token, of which `context_ids` are new since turn `parent`."""

    parent: int | None
    context_ids: IntArray
    ids: IntArray
    label: TurnLabel = TurnLabel.MAIN
    """What is asked for: an action, or a summary."""


class Conversation(Protocol):
    """One chat. Calls alternate: `observe`, `answer`, `observe`, …"""

    def observe(self, observation: str) -> Prompt:
        """Return the prompt that shows `observation` as the newest message, or asks for a summary first.

        What `answer` replied is observed like anything else.
        """
        ...

    def answer(self, completion_ids: IntArray, *, closed: bool, text: str = "") -> Reply | None:
        """Take the answer to the newest prompt; return the reply to one that is not meant for the environment.

        `closed` says that it ends with the template's end token; `text` is what it says.
        """
        ...


class TokenBuffer:
    """One growing context. What was handed out of it are views of what no longer changes."""

    def __init__(self) -> None:
        self._buffer: IntArray = np.empty(FIRST_CAPACITY, np.int32)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, ids: IntArray) -> IntArray:
        """Append; return everything so far."""
        end = self._length + len(ids)
        if end > len(self._buffer):
            grown = np.empty(max(end, 2 * len(self._buffer)), np.int32)
            grown[: self._length] = self._buffer[: self._length]
            self._buffer = grown
        self._buffer[self._length : end] = ids
        self._length = end
        return self._buffer[:end]


def opening(system: str, told: Iterable[tuple[str, str]], newest: str) -> list[Message]:
    """Return the messages of a fresh context: system, the (observation, action) pairs `told`, the newest observation."""
    messages = [Message("system", system)] if system else []
    for observation, action in told:
        messages += (Message("user", observation), Message("assistant", action))
    messages.append(Message("user", newest))
    return messages
