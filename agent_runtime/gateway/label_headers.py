"""What an agent that knows ALE says of its own requests, in any wire format: what each is for, and whose it is.

    X-ALE-Label: main | sub_agent | summary | side
    X-ALE-Conversation: any name of a sub-agent's conversation, at most 128 visible ASCII characters

Read by `reading` once a body is. Both come from the agent's sandbox: a value outside these bounds is refused, and none can
name `error` or `superseded`, which are found out from what becomes of an answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from agent_runtime.chat import Asked, ChatRequest, Refusal, RefusalKind

__all__ = ["CONVERSATION_HEADER", "LABEL_HEADER", "labelled"]

LABEL_HEADER = "x-ale-label"
CONVERSATION_HEADER = "x-ale-conversation"
_LABELS = {asked.value: asked for asked in Asked if asked is not Asked.UNSAID}
_CONVERSATION = re.compile(r"[!-~]{1,128}")
_SHOWN = 64
"""Characters of a refused value that the refusal repeats."""


def labelled(request: ChatRequest, headers: Mapping[str, str]) -> ChatRequest:
    """Return the request with what these headers say in place of what the agent says otherwise. Raise `Refusal`.

    `main` is of no sub-agent: it takes the conversation away, unless the agent names one here, which is refused.
    """
    label, conversation = headers.get(LABEL_HEADER), headers.get(CONVERSATION_HEADER)
    if label is None and conversation is None:
        return request
    if label is not None and label not in _LABELS:
        raise _bad(LABEL_HEADER, label, f"one of {', '.join(_LABELS)}")
    if conversation is not None and not _CONVERSATION.fullmatch(conversation):
        raise _bad(CONVERSATION_HEADER, conversation, "1 to 128 visible ASCII characters")
    asked = request.asked if label is None else _LABELS[label]
    if asked is Asked.MAIN and conversation is not None:
        raise _bad(CONVERSATION_HEADER, conversation, f"none beside {LABEL_HEADER}: main")
    kept = "" if asked is Asked.MAIN else request.conversation
    return replace(request, asked=asked, conversation=kept if conversation is None else conversation)


def _bad(header: str, got: str, expected: str) -> Refusal:
    return Refusal(
        RefusalKind.BAD_REQUEST,
        f"the header {header} is {got[:_SHOWN]!r}, expected {expected}. Correct it, or leave it out.",
    )
