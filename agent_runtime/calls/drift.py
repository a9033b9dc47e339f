"""Why a history opens a fresh context although calls went before it: each reason found, none guessed.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agent_runtime.calls.canonical import Item, canonical_json, canonical_text
from agent_runtime.calls.nodes import Call, Drift, Node, Walk, walk_down
from agent_runtime.chat import ChatMessage

__all__ = ["Origin", "explain", "summary_in"]

_SHORT_LINE = 24
"""Characters (white space left out) below which a line proves no origin; a summary's format is longer."""
_MOST_LINES = 64
"""About so many lines of a summary are looked for, evenly spread."""
_SEARCHED = 256 << 10
"""Characters of a fresh context that a summary is looked for in: such a context is short, that is what it is for."""

_TAG = re.compile(r"</?[a-zA-Z][\w-]*>")
"""What a summary is asked to stand between; agents cut it away or write a heading in its place."""


class Origin(NamedTuple):
    """Where a history that continues no answer comes from."""

    drift: Drift
    continues: Call | None
    """The call it goes on from; None for a new conversation, whose drift is `NONE`."""
    echoes: tuple[Call, ...]
    """The calls whose answers it has."""


def explain(
    items: Sequence[Item],
    walk: Walk,
    roots: Iterable[Node],
    answers: Mapping[bytes, Call],
    summaries: Sequence[Call],
    *,
    has_tools: bool,
) -> Origin:
    """Return why these messages continue no answer.

    `answers` has the newest call of every answer by its digest, `summaries` the calls that are searched for a summary;
    `has_tools`: the history comes with tools.
    """
    echoes = tuple(answers[item.digest] for item in items if item.digest in answers)
    newest = max((call.index for call in echoes), default=-1)  # a summary is of what went before it
    summary = summary_in(items, [call for call in summaries if call.index >= newest], has_tools=has_tools)
    if summary is not None:
        return Origin(Drift.COMPACTION, summary, echoes)
    following = items[walk.depth] if walk.depth < len(items) else None
    asked = walk.node.asked[-1] if walk.node.asked else None
    if following is not None and asked is not None:
        if following.message.role == "assistant" and following.digest not in answers:
            return Origin(_rewritten(asked, following.message), asked, echoes)
        if following.message.role != "assistant" and not _passed(walk.node):
            return Origin(Drift.ANSWER_DROPPED, asked, echoes)
    if walk.answer is None:
        elsewhere = [walk_down(root, items) for root in roots]
        known = [other.answer for other in elsewhere if other.answer is not None]
        if known:
            return Origin(Drift.TOOLS, max(known, key=lambda call: call.index), echoes)
    if not echoes:
        return Origin(Drift.NONE, None, echoes)
    if following is None or (following.digest not in answers and following.message.role == "assistant"):
        return Origin(Drift.ANSWER_INSERTED, echoes[-1], echoes)
    if walk.depth == 0 and following.message.role == "system":
        return Origin(Drift.SYSTEM, echoes[-1], echoes)
    return Origin(Drift.HISTORY, echoes[-1], echoes)


def summary_in(items: Sequence[Item], calls: Sequence[Call], *, has_tools: bool) -> Call | None:
    """Return the call whose answer a fresh context begins with, if there is one.

    A summary stands in a message of the system or user, whole or most of its lines (agents cut analysis away), or it is the
    context's first answer and the context is shorter than the one it sums up, or has tools where it was asked without.
    """
    if not calls:
        return None
    told = canonical_text(_beginning(items))
    first = next((item for item in items if item.message.role == "assistant"), None)
    answer = canonical_text(first.message.content) if first is not None else ""
    for call in reversed(calls):
        if call.parsed.tool_calls:
            continue
        text = call.parsed.text
        if first is not None and answer == canonical_text(text):
            asked_aside = has_tools and not call.has_tools
            if text.strip() and (asked_aside or len(items) < _length(call)):
                return call
        elif _told(text, told):
            return call
    return None


def _beginning(items: Sequence[Item]) -> str:
    """Return the first texts of the system and the user, as many as a summary is looked for in."""
    texts: list[str] = []
    left = _SEARCHED
    for item in items:
        if item.message.role in ("system", "user") and left > 0:
            texts.append(item.message.content[:left])
            left -= len(texts[-1])
    return "\n".join(texts)


def _told(text: str, told: str) -> bool:
    text = _TAG.sub("\n", text)
    whole = canonical_text(text)
    if len(whole) >= _SHORT_LINE and whole in told:
        return True
    lines = [line for line in map(canonical_text, text.splitlines()) if len(line) >= _SHORT_LINE]
    lines = lines[:: 1 + len(lines) // _MOST_LINES]
    return bool(lines) and 2 * sum(line in told for line in lines) >= len(lines)


def _length(call: Call) -> int:
    """Return how many messages a call's history has."""
    messages, node = 0, call.node
    while node.parent is not None:
        messages, node = messages + 1, node.parent
    return messages


def _passed(node: Node) -> bool:
    """Return whether some history left out the answers of this place before."""
    others = (child.message and child.message.role != "assistant" for child in node.children.values())
    return any(others) or any(call.dropped for call in node.asked)


def _rewritten(call: Call, echo: ChatMessage) -> Drift:
    sampled = [(use.name, canonical_json(use.arguments)) for use in call.parsed.tool_calls]
    echoed = [(use.name, canonical_json(use.arguments)) for use in echo.tool_calls]
    return Drift.ANSWER_CALLS if sampled != echoed else Drift.ANSWER_TEXT
