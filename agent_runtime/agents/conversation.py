"""The tokens of one chat: what the model is shown next, made of the template's and its own sampled ids.

Used by both agents, so that an expert's turn has exactly the context a sampled turn would have. Text that was
sampled is never tokenised again: past answers enter later prompts as the ids that were stored.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

import numpy as np

from agent_runtime.policy import ChatTemplate, Message
from agent_runtime.types import AgentConfig, IntArray, Start, Trajectory, Turn

__all__ = ["Conversation", "Prompt", "open_conversation", "prompt_after"]

FIRST_CAPACITY = 1024
"""Tokens; the buffer doubles from here, so appending stays linear in the number of tokens."""


class Prompt(NamedTuple):
    """One prompt: `ids` from the first token, of which `context_ids` are new since turn `parent`."""

    parent: int | None
    context_ids: IntArray
    ids: IntArray


class Conversation(Protocol):
    """One chat. Calls alternate: `observe`, `answer`, `observe`, …"""

    def observe(self, observation: str) -> Prompt:
        """Return the prompt that shows `observation` as the newest message."""
        ...

    def answer(self, completion_ids: IntArray, *, closed: bool) -> None:
        """Take the answer to the newest prompt; `closed`: it ends with the template's end token."""
        ...


def open_conversation(
    config: AgentConfig, start: Start, template: ChatTemplate, *, instruction: str
) -> Conversation:
    """Return the chat that `config` asks for: growing (`window_turns=0`) or windowed."""
    system = instruction if config.system else ""
    if config.window_turns:
        return _Windowed(template, system, start, config.window_turns)
    return _Growing(template, system, start)


def prompt_after(
    trajectory: Trajectory, config: AgentConfig, template: ChatTemplate, *, instruction: str
) -> Prompt:
    """Return the prompt that would have shown a trajectory's last observation, had it gone on.

    `instruction` is read where `config` is windowed and sends one.
    """
    turns, shown = trajectory.turns, (trajectory.first_observation, *trajectory.observations)
    if not config.window_turns and turns:
        last = turns[-1]
        message = Message("user", shown[-1])
        ids = template.extend((message,), closed=last.finish_reason == "stop")
        parts = [ids]
        turn: Turn | None = last
        while turn is not None:
            parts += (turn.completion_ids, turn.context_ids)
            turn = None if turn.parent is None else turns[turn.parent]
        return Prompt(last.index, ids, np.concatenate(parts[::-1]))
    chat = open_conversation(config, trajectory.start, template, instruction=instruction)
    first = max(len(turns) - (config.window_turns - 1), 0)  # what lies before is out of the window
    for told, observation in zip(turns[first:], shown[first:], strict=False):
        chat.observe(observation)
        chat.answer(told.completion_ids, closed=told.finish_reason == "stop")
    return chat.observe(shown[-1])


def _opening(system: str, start: Start, past_turns: int, observation: str) -> list[Message]:
    """Return the messages of a fresh context: system, the prefix's last `past_turns`, the observation, the hint."""
    messages = [Message("system", system)] if system else []
    for index in range(start.anchor - past_turns, start.anchor):
        shown = start.prefix[index - 1].observation if index else start.first_observation
        messages.append(Message("user", shown))
        messages.append(Message("assistant", start.prefix[index].action))
    messages.append(Message("user", f"{observation}\n\n{start.hint}" if start.hint else observation))
    return messages


class _Growing:
    """Every turn continues the one before and adds only its new tokens."""

    def __init__(self, template: ChatTemplate, system: str, start: Start) -> None:
        self._template = template
        self._system = system
        self._start = start
        self._turns = 0
        self._closed = True
        self._buffer: IntArray = np.empty(FIRST_CAPACITY, np.int32)
        self._length = 0

    def observe(self, observation: str) -> Prompt:
        if self._turns == 0:
            messages = _opening(self._system, self._start, self._start.anchor, observation)
            parent, ids = None, self._template.open(messages)
        else:
            parent = self._turns - 1
            ids = self._template.extend((Message("user", observation),), closed=self._closed)
        self._append(ids)
        return Prompt(parent, ids, self._buffer[: self._length])

    def answer(self, completion_ids: IntArray, *, closed: bool) -> None:
        self._append(completion_ids)
        self._closed = closed
        self._turns += 1

    def _append(self, ids: IntArray) -> None:
        """Append to the one buffer. Prompts already handed out are views of what no longer changes."""
        end = self._length + len(ids)
        if end > len(self._buffer):
            grown = np.empty(max(end, 2 * len(self._buffer)), np.int32)
            grown[: self._length] = self._buffer[: self._length]
            self._buffer = grown
        self._buffer[self._length : end] = ids
        self._length = end


class _Past(NamedTuple):
    observation: str
    shown_ids: IntArray
    """The tokens that showed the observation: after another answer, or opening a fresh context."""
    completion_ids: IntArray


class _Windowed:
    """Every turn is a fresh context: system, the last `window` observations, the answers between them."""

    def __init__(self, template: ChatTemplate, system: str, start: Start, window: int) -> None:
        self._template = template
        self._system = system
        self._start = start
        self._past: deque[_Past] = deque(maxlen=window - 1)
        self._window = window
        self._closed = True
        self._newest = ""
        self._newest_ids: IntArray = np.empty(0, np.int32)

    def observe(self, observation: str) -> Prompt:
        past = list(self._past)
        from_prefix = min(self._window - 1 - len(past), self._start.anchor)
        oldest = past[0].observation if past else observation
        parts = [self._template.open(_opening(self._system, self._start, from_prefix, oldest))]
        if past:
            parts.append(past[0].completion_ids)
            for turn in past[1:]:
                parts += (turn.shown_ids, turn.completion_ids)
            parts.append(self._template.extend((Message("user", observation),), closed=self._closed))
        self._newest, self._newest_ids = observation, parts[-1]
        ids = np.concatenate(parts) if past else parts[0]
        return Prompt(None, ids, ids)

    def answer(self, completion_ids: IntArray, *, closed: bool) -> None:
        self._past.append(_Past(self._newest, self._newest_ids, completion_ids))
        self._closed = closed
