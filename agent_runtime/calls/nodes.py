"""What the tree of a session's calls is made of: places in histories, and the calls that were asked there.

Built by `tree.CallTree` only; read by `drift`, `labels` and `record`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from agent_runtime.calls.canonical import Item, canonical_json, canonical_text
from agent_runtime.chat import Asked, ChatMessage, Parsed, ToolUse
from agent_runtime.policy import Completion
from agent_runtime.types import IntArray

__all__ = ["Call", "Drift", "Node", "Walk", "child_of", "prompt_ids", "walk_down"]

_LONGER = 12
"""How many times as long as it was sampled an echo's JSON may be: six for escapes, and as much for white space."""


class Drift(StrEnum):
    """Why a history opened a fresh context although it goes on from earlier calls."""

    NONE = ""
    """It did not: it continues an answer, or is the first of its conversation."""
    COMPACTION = "compaction"
    """It begins with a summary that was sampled here: meant, and no fault of the agent's."""
    ANSWER_TEXT = "answer text rewritten"
    ANSWER_CALLS = "tool calls rewritten"
    """The echo of an answer has other words or other calls than were sampled."""
    ANSWER_DROPPED = "answer dropped"
    """The first answer of a context is left out of the history."""
    ANSWER_INSERTED = "answer inserted"
    """The history has an answer that nobody sampled here."""
    SYSTEM = "system message rewritten"
    TOOLS = "tools changed"
    """The same history under other tools, which the context shows at its beginning."""
    HISTORY = "history rewritten"
    """A message that the model was shown reads otherwise now, or is gone, before answers that it gave."""


@dataclass(slots=True, eq=False)
class Node:
    """A place in a history: everything up to one message. Each message is kept once."""

    parent: Node | None
    message: ChatMessage | None
    """None at a root."""
    born: int
    """How many calls there were when it was first seen."""
    children: dict[bytes, Node] = field(default_factory=dict)
    asked: list[Call] = field(default_factory=list)
    """The calls whose prompt ends here, oldest first."""
    answers: list[Call] = field(default_factory=list)
    """The calls whose answer this message is."""


@dataclass(slots=True, eq=False)
class Call:
    """One model call, answered."""

    index: int
    parent: Call | None
    """The call whose tokens this one's prompt begins with."""
    root: Call | None
    """The call that opened its context; None for itself."""
    node: Node
    """Where its prompt ends."""
    answer: Node
    request: int
    """The number of the request that it answers: siblings, the several answers of one request, share it."""
    seed: int | None
    """What the agent named; with another one it asked for another sample on purpose."""
    asked: Asked
    conversation: str
    has_tools: bool
    drift: Drift
    continues: Call | None
    """Of a fresh context: the call that its history goes on from, where one is known."""
    context_ids: IntArray
    completion: Completion
    parsed: Parsed
    started_s: float
    sampled_s: float
    delivered: bool = False
    continued: bool = False
    """A later call goes on from its answer."""
    kept: bool = False
    """A fresh context has its answer, in a history that was written anew."""
    summarises: bool = False
    """A later context begins with its answer."""
    echoed: bool = False
    """A later request had its answer, whatever became of that request."""
    dropped: bool = False
    """It was malformed and a later history leaves it out, though that history's prompt shows it."""

    @property
    def opening(self) -> Call:
        """Return the call that opened its context."""
        return self.root or self

    def repeats(self, other: Call) -> bool:
        """Return whether it was asked for since `other`, an answer to the same prompt, was of no use."""
        return (
            self.index > other.index
            and self.request != other.request
            and (self.seed, self.conversation, self.asked) == (other.seed, other.conversation, other.asked)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """How far a history is known."""

    node: Node
    depth: int
    """Messages (canonical ones) that the tree holds."""
    answer: Call | None
    """The deepest call whose answer lies on the way."""
    answer_at: int
    """The place of that answer among the messages; -1 for none."""
    repaired: bool
    """That answer was malformed, and the agent echoes what it made of it."""
    dropped: tuple[Call, ...] = ()
    """Malformed answers on the way that the history leaves out."""


def walk_down(root: Node, items: Sequence[Item]) -> Walk:
    """Follow a history from a root as far as it is known."""
    node, answer, answer_at, repaired = root, None, -1, False
    dropped: tuple[Call, ...] = ()
    for depth, item in enumerate(items):
        echo = item.message.role == "assistant"
        child = node.children.get(item.digest)
        mended = None if child or not echo else _mended(node, item.message)
        if mended is not None:
            child = mended.answer
        if child is None:
            child, left_out = _behind_dropped(node, item)
            dropped += left_out
            if left_out and not echo:
                answer, answer_at, repaired = left_out[-1], depth - 1, False
        if child is None:
            newest = None if _has_answer(items[depth:]) else _droppable(node, item)
            if newest is None:
                return Walk(node, depth, answer, answer_at, repaired, dropped)
            return Walk(newest.answer, depth, newest, depth - 1, False, (*dropped, newest))
        node = child
        if node.answers:
            answer, answer_at = _meant(node, item.message), depth
            repaired = mended is not None
    return Walk(node, len(items), answer, answer_at, repaired, dropped)


def child_of(node: Node, item: Item, born: int) -> Node:
    """Return the place after `item`, made if need be."""
    child = node.children.get(item.digest)
    if child is None:
        child = node.children[item.digest] = Node(node, item.message, born)
    return child


def prompt_ids(call: Call) -> IntArray:
    """Return the whole prompt of a call, from the first token."""
    parts = [call.context_ids]
    above = call.parent
    while above is not None:
        parts += (above.completion.ids, above.context_ids)
        above = above.parent
    return np.concatenate(parts[::-1])


def _meant(node: Node, echo: ChatMessage) -> Call:
    """Return which of several calls with the same answer an echo goes on from: by its reasoning, then the newest in use."""
    reasoning = canonical_text(echo.reasoning)
    return max(
        node.answers,
        key=lambda call: (
            canonical_text(call.parsed.reasoning) == reasoning,
            call.delivered or call.continued,
            call.index,
        ),
    )


def _mended(node: Node, echo: ChatMessage) -> Call | None:
    """Return the call with a malformed answer that an agent repaired or renamed before it sent it back."""
    malformed = [call for call in reversed(node.asked) if call.parsed.malformed]
    said = canonical_text(echo.content) if malformed else ""
    for call in malformed:
        parsed = call.parsed
        if canonical_text(parsed.text) != said:
            continue
        if len(parsed.tool_calls) == len(echo.tool_calls) or _some_of(parsed.tool_calls, echo.tool_calls):
            return call
    return None


def _some_of(sampled: Sequence[ToolUse], echoed: Sequence[ToolUse]) -> bool:
    """Return whether an echo has only calls that were sampled, in their order; it may leave some out.

    An echo of any length is read only if its arguments could be sampled ones: escapes and white space make them longer.
    """
    if sum(len(use.arguments) for use in echoed) > _LONGER * (1 + sum(len(use.arguments) for use in sampled)):
        return False
    rest = iter([(use.name, canonical_json(use.arguments)) for use in sampled])
    return all((use.name, canonical_json(use.arguments)) in rest for use in echoed)


def _behind_dropped(node: Node, item: Item) -> tuple[Node | None, tuple[Call, ...]]:
    """Find `item` behind malformed answers that a history leaves out; return its place and those answers.

    A complaint (mini-swe-agent) follows the answer that it leaves out. A good answer (SWE-agent) stands in a history that
    leaves out the malformed ones before it with the complaints about them. Each place below is visited once.
    """
    echo = item.message.role == "assistant"
    if not echo and item.message.role != "user":
        return None, ()
    places: list[tuple[Node, tuple[Call, ...]]] = [(node, ())]
    while places:
        place, before = places.pop()
        bad = {id(call.answer): call for call in place.asked if call.parsed.malformed}
        for call in bad.values():
            left_out = (*before, call)
            if not echo:
                child = call.answer.children.get(item.digest)
                if child is not None:
                    return child, left_out
                continue
            for complaint in call.answer.children.values():
                child = complaint.children.get(item.digest)
                if child is not None and child.answers:
                    return child, left_out
                if complaint.message is not None and complaint.message.role == "user":
                    places.append((complaint, left_out))
    return None, ()


def _droppable(node: Node, item: Item) -> Call | None:
    """Return the malformed answer in whose place a history has a user's message, seen for the first time."""
    newest = node.asked[-1] if node.asked else None
    complained = item.message.role == "user" and newest is not None
    return newest if complained and newest and newest.delivered and newest.parsed.malformed else None


def _has_answer(items: Sequence[Item]) -> bool:
    return any(item.message.role == "assistant" for item in items)
