"""The tokens of one chat: what the model is shown next, made of the template's and its own sampled ids.

Used by both agents, so that an expert's turn has exactly the context a sampled turn would have. Text that was
sampled is never tokenised again: past answers enter later prompts as the ids that were stored.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from agent_runtime.agents.long_horizon import LongHorizon
from agent_runtime.agents.prompts import Conversation, Prompt, TokenBuffer, opening
from agent_runtime.policy import ChatTemplate, Message
from agent_runtime.types import AgentConfig, IntArray, Start, Trajectory, Turn

__all__ = ["Conversation", "Prompt", "open_conversation", "prompt_after"]


def open_conversation(
    config: AgentConfig, start: Start, template: ChatTemplate, *, instruction: str, max_tokens: int
) -> Conversation:
    """Return the chat that `config` asks for: growing (`window_turns=0`), windowed, or with summaries (`long_horizon`).

    `max_tokens` bounds an answer. Raise `InvalidArgument` where the model's context is too short for the agent.
    """
    system = instruction if config.system else ""
    if config.kind == "long_horizon":
        return LongHorizon(template, system, start, config, max_tokens=max_tokens)
    if config.window_turns:
        return _Windowed(template, system, start, config.window_turns)
    return _Growing(template, system, start)


def prompt_after(
    trajectory: Trajectory,
    config: AgentConfig,
    template: ChatTemplate,
    *,
    instruction: str,
    max_tokens: int,
) -> Prompt:
    """Return the prompt that would have come after a trajectory's last turn, had it gone on.

    `instruction` is read where `config` sends one and does not just grow; `max_tokens` as for `open_conversation`.
    """
    turns, shown = trajectory.turns, (trajectory.first_observation, *trajectory.observations)
    if config.kind == "chat" and not config.window_turns and turns:
        last = turns[-1]
        message = Message("user", shown[-1])
        ids = template.extend((message,), closed=last.finish_reason == "stop")
        parts = [ids]
        turn: Turn | None = last
        while turn is not None:
            parts += (turn.completion_ids, turn.context_ids)
            turn = None if turn.parent is None else turns[turn.parent]
        return Prompt(last.index, ids, np.concatenate(parts[::-1]))
    chat = open_conversation(
        config, trajectory.start, template, instruction=instruction, max_tokens=max_tokens
    )
    first = 0
    if config.kind == "chat":
        first = max(len(turns) - (config.window_turns - 1), 0)  # what lies before is out of the window
    for told, observation in zip(turns[first:], shown[first:], strict=False):
        chat.observe(observation)
        closed = told.finish_reason == "stop"
        chat.answer(told.completion_ids, closed=closed, text=trajectory.actions[told.index])
    return chat.observe(shown[-1])


def _opening(system: str, start: Start, past_turns: int, observation: str) -> list[Message]:
    """Return the messages of a fresh context: system, the prefix's last `past_turns`, the observation, the hint."""
    told: list[tuple[str, str]] = []
    for index in range(start.anchor - past_turns, start.anchor):
        shown = start.prefix[index - 1].observation if index else start.first_observation
        told.append((shown, start.prefix[index].action))
    return opening(system, told, f"{observation}\n\n{start.hint}" if start.hint else observation)


class _Growing:
    """Every turn continues the one before and adds only its new tokens."""

    def __init__(self, template: ChatTemplate, system: str, start: Start) -> None:
        self._template = template
        self._system = system
        self._start = start
        self._turns = 0
        self._closed = True
        self._tokens = TokenBuffer()

    def observe(self, observation: str) -> Prompt:
        if self._turns == 0:
            messages = _opening(self._system, self._start, self._start.anchor, observation)
            parent, ids = None, self._template.open(messages)
        else:
            parent = self._turns - 1
            ids = self._template.extend((Message("user", observation),), closed=self._closed)
        return Prompt(parent, ids, self._tokens.append(ids))

    def answer(self, completion_ids: IntArray, *, closed: bool, text: str = "") -> None:
        self._tokens.append(completion_ids)
        self._closed = closed
        self._turns += 1


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

    def answer(self, completion_ids: IntArray, *, closed: bool, text: str = "") -> None:
        self._past.append(_Past(self._newest, self._newest_ids, completion_ids))
        self._closed = closed
