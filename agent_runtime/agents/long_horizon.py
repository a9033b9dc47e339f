"""The reference agent for long tasks: a conversation that is compacted before it is full, and a memory that outlasts it.

Opened by `conversation.open_conversation` where `AgentConfig.kind` is `long_horizon`; the loop around it is `chat_loop`.

    context    system, the first observation, then turn after turn, as in a plain chat
    summary    where the next prompt would pass `compact_at` of the context, or leave no room for an answer and a summary
               after it, the policy is asked for a summary instead: a turn like any other, label `SUMMARY`
    context    system; the first observation and the notes; the summary as the policy's own words; the newest observation

A fresh context is a root of the turn tree (`Turn.parent` None). It is put together of template tokens around the stored
ids of the summary: nothing that was sampled is tokenised again. Notes are read and written by calls (`memory`) that are
answered here. What comes next is a function of what was seen and answered, so a record leads to the same prompts again.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from agent_runtime.agent import Reply
from agent_runtime.agents.memory import Memory
from agent_runtime.agents.prompts import Prompt, TokenBuffer, opening
from agent_runtime.policy import ChatTemplate, Message
from agent_runtime.types import AgentConfig, IntArray, Start, TurnLabel
from rock_env.errors import InvalidArgument

__all__ = ["ASK_SUMMARY", "LongHorizon"]

ASK_SUMMARY = (
    "[context] Your context is almost full and will be emptied. Do not act now. Write a summary of this task for yourself: "
    "what is wanted, what you did and found out, what is left to do, and the action that you took last. What came of that "
    "action is shown to you after the summary."
)
GOES_ON = "[context] The context was emptied. Your summary of what happened until then, and the newest observation, follow."


class LongHorizon:
    """A `Conversation` that asks for summaries and handles calls of the memory."""

    def __init__(
        self, template: ChatTemplate, system: str, start: Start, config: AgentConfig, *, max_tokens: int
    ) -> None:
        """Raise `InvalidArgument` where an answer and a summary leave nothing of the model's context."""
        self._template = template
        self._start = start
        self._ask_ids = template.extend((Message("user", ASK_SUMMARY),), closed=False)
        reserved = max_tokens + len(self._ask_ids) + config.summary_tokens
        self._limit = min(int(config.compact_at * template.max_context), template.max_context - reserved)
        if self._limit <= 0:
            raise InvalidArgument(
                f"the long-horizon agent has no room: an answer ({max_tokens} tokens), the request for a summary "
                f"({len(self._ask_ids)}) and the summary ({config.summary_tokens}) take {reserved} tokens, expected less "
                f"than the model's context of {template.max_context}. Lower agent.summary_tokens or sampling.max_tokens, or "
                "take a model with a longer context."
            )
        self._memory = Memory(config.memory_chars) if config.memory_chars else None
        if self._memory is not None:
            system = f"{system}\n\n{self._memory.describe()}" if system else ""
            for call in (call for turn in start.prefix for call in turn.memory):
                self._memory.handle(call)
        self._system = system
        self._tokens = TokenBuffer()
        self._turns = 0
        self._closed = True
        self._label = TurnLabel.MAIN
        self._replied = False
        self._first = start.first_observation if start.prefix else ""
        self._observation = ""
        self._said = ""
        """What the memory said last since that observation."""
        self._summary_ids: IntArray = np.empty(0, np.int32)

    def observe(self, observation: str) -> Prompt:
        """Return the next prompt; after a summary, that of a fresh context."""
        if self._label is TurnLabel.SUMMARY:
            self._label = TurnLabel.MAIN
            return self._root(self._after_summary())
        if self._turns == 0:
            self._first = self._first or observation
            self._observation = observation
            return self._root(self._at_start())
        if self._replied:
            self._said = observation
        else:
            self._observation, self._said = observation, ""
        ids = self._template.extend((Message("user", observation),), closed=self._closed)
        if len(self._tokens) + len(ids) > self._limit:
            self._label = TurnLabel.SUMMARY
            ids = self._template.extend((Message("user", ASK_SUMMARY),), closed=self._closed)
        return Prompt(self._turns - 1, ids, self._tokens.append(ids), self._label)

    def answer(self, completion_ids: IntArray, *, closed: bool, text: str = "") -> Reply | None:
        """Take the answer; return the reply to a summary or to a call of the memory."""
        self._tokens.append(completion_ids)
        self._turns += 1
        self._closed = closed
        if self._label is TurnLabel.SUMMARY:
            self._summary_ids = completion_ids
            return Reply("", label=TurnLabel.SUMMARY)
        reply = None if self._memory is None else self._memory.handle(text)
        self._replied = reply is not None
        return reply

    def _root(self, ids: IntArray) -> Prompt:
        self._tokens = TokenBuffer()
        return Prompt(None, ids, self._tokens.append(ids), self._label)

    def _at_start(self) -> IntArray:
        """Return the first context: with the whole replayed prefix if it fits, or as many of its last turns as do."""
        whole = self._opened(0)
        if len(whole) <= self._limit or not self._start.prefix:
            return whole
        left_out = range(1, self._start.anchor + 1)
        fitting = bisect_left(left_out, True, key=lambda count: len(self._opened(count)) <= self._limit)
        return self._opened(left_out[min(fitting, len(left_out) - 1)])

    def _opened(self, left_out: int) -> IntArray:
        """Return the first context without the first `left_out` turns of the prefix."""
        prefix = self._start.prefix
        shown = [self._first, *(turn.observation for turn in prefix)]
        shown[-1] = self._observation
        if left_out:
            shown[left_out] = (
                f"{self._first}\n\n[context] {left_out} turns are left out.\n\n{shown[left_out]}"
            )
        shown[-1] = _joined(shown[-1], self._notes(), self._start.hint)
        actions = [turn.action for turn in prefix]
        told = list(zip(shown, actions, strict=False))[left_out:]
        return self._template.open(opening(self._system, told, shown[-1]))

    def _after_summary(self) -> IntArray:
        """Return a fresh context around the ids of the newest summary."""
        task = _joined(self._first, self._start.hint, self._notes(), GOES_ON)
        newest = Message("user", _joined(self._observation, self._said))
        return np.concatenate(
            (
                self._template.open(opening(self._system, (), task)),
                self._summary_ids,
                self._template.extend((newest,), closed=self._closed),
            )
        )

    def _notes(self) -> str:
        return "" if self._memory is None else self._memory.shown()


def _joined(*parts: str) -> str:
    return "\n\n".join(part for part in parts if part)
