"""What a sample says to the agent that asked for it. Pure; used by `session`. The sampled ids stay what they are."""

from __future__ import annotations

import time
from dataclasses import replace

from agent_runtime.calls.tree import CallPrompt, Match
from agent_runtime.chat import ChatReply, ChatRequest, Parsed, ToolTemplate, Usage
from agent_runtime.policy import Completion, first_stop

__all__ = ["read_answer", "reply_to"]


def read_answer(
    template: ToolTemplate, completion: Completion, request: ChatRequest, index: int
) -> tuple[Parsed, str]:
    """Return what the `index`-th answer of a session says, and which stop text ended it, if any.

    Its calls get ids that no other answer of the session has; it has none where the request wants none.
    """
    tools = request.tools if request.tool_choice == "auto" else ()
    parsed = template.parse(completion.ids, tools)
    uses = tuple(
        replace(use, id=f"call_{index:06x}{place:02x}") for place, use in enumerate(parsed.tool_calls)
    )
    parsed = replace(parsed, tool_calls=uses) if uses else parsed
    if not request.stop:
        return parsed, completion.stopped_by
    for said, rest in (("reasoning", {"text": ""}), ("text", {})):
        at, stop = first_stop(getattr(parsed, said), request.stop)
        if stop:
            return replace(parsed, **{said: getattr(parsed, said)[:at], **rest}), stop
    return parsed, completion.stopped_by


def reply_to(
    match: Match, prompt: CallPrompt, completion: Completion, parsed: Parsed, *, name: str, stop: str
) -> ChatReply:
    """Return the answer `name` to a request; `stop` is the text that ended it."""
    finish = completion.finish_reason
    return ChatReply(
        id=name,
        model=match.request.model,
        text=parsed.text,
        finish="tool_calls" if parsed.tool_calls and finish == "stop" else finish,
        usage=Usage(len(prompt.ids), len(completion.ids), prompt.cached_tokens),
        reasoning=parsed.reasoning,
        tool_calls=parsed.tool_calls,
        created_s=int(time.time()),
        stop=stop,
    )
