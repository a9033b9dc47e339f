"""Prompts of a session's calls: short ones at once, long ones in a thread, so that nobody else waits for them.

Used by `session`. The threads are few and the gateway's own; a session has one of them at a time, so that none waits for
more than one prompt of each other. Templates render in Python, and tokenizers let go of the interpreter's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from agent_runtime.calls.tree import CallPrompt, CallTree, Match
from agent_runtime.chat import ChatMessage, ToolSpec

__all__ = ["PromptRenderer"]

LARGE_CHARACTERS, MANY_MESSAGES = 32 << 10, 256
"""From here on what is new would hold the event loop for milliseconds."""
_THREADS = ThreadPoolExecutor(4, "ale-render")


class PromptRenderer:
    """Renders the prompts of one session."""

    def __init__(self, tree: CallTree) -> None:
        self._tree = tree
        self._turn = asyncio.Lock()

    async def prompt(self, match: Match) -> CallPrompt:
        """Return a prompt's tokens. Raise `Refusal`."""
        tools = () if match.parent is not None else match.request.tools
        if not _is_long(match.new, tools):
            return self._tree.prompt(match)
        async with self._turn:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(_THREADS, self._tree.prompt, match)


def _is_long(messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> bool:
    if len(messages) > MANY_MESSAGES:
        return True
    chars = sum(len(tool.description) + len(tool.parameters) for tool in tools)
    for message in messages:
        chars += len(message.content) + len(message.reasoning)
        chars += sum(len(call.arguments) for call in message.tool_calls)
    return chars > LARGE_CHARACTERS
