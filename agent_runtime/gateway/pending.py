"""One request of a session on its way to its answers. Made by `session`, waited for by `server`."""

from __future__ import annotations

import asyncio

from agent_runtime.calls.tree import Call
from agent_runtime.chat import Asked, ChatReply, ChatRequest, Refusal

__all__ = ["SERVED", "PendingReply"]

SERVED = 3
"""How often one answer is handed out: more is no network's fault, but an agent that cannot use it."""


class PendingReply:
    """One request on its way to an answer. Any number of clients may wait for it."""

    __slots__ = ("answers", "beside", "broken", "calls", "has_tools", "max_tokens", "outcome", "served")

    def __init__(self, request: ChatRequest) -> None:
        self.has_tools = bool(request.tools)
        self.beside = request.asked in (Asked.SUB_AGENT, Asked.SIDE) or bool(request.conversation)
        """The agent says that it is not the main conversation's."""
        self.outcome: asyncio.Future[ChatReply | Refusal] = asyncio.get_running_loop().create_future()
        """Never fails. Others may wait for it too: wait with `asyncio.wait` or shielded."""
        self.answers = request.n
        """How many it asks for."""
        self.calls: list[Call] = []
        """Its answers in the tree, as they were sampled."""
        self.broken = False
        """Part of the answer left before its client was gone."""
        self.max_tokens = 0
        """Reserved in the budget for each answer, from the beginning to the end of sampling."""
        self.served = 0
        """How many times the whole answer was handed out."""

    def settle(self, outcome: ChatReply | Refusal) -> None:
        """Tell all who wait."""
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def is_dead(self) -> bool:
        """Return whether the same request again needs a new sample.

        It does where the answer broke off, where it was of no use, where the agent went on from it and is back, and where
        it keeps asking. Of several answers none was of use, or the agent went on from one.
        """
        if len(self.calls) < self.answers:
            return self.outcome.done()
        if not self.served:
            return self.broken
        went_on = any(call.continued for call in self.calls)
        return went_on or self.served >= SERVED or all(map(_is_useless, self.calls))


def _is_useless(call: Call) -> bool:
    parsed = call.parsed
    nothing = not (parsed.text.strip() or parsed.tool_calls)
    return (
        bool(parsed.malformed) or nothing or call.completion.finish_reason == "length"
    )  # to codex a broken stream
