"""Whether continuing from sampled ids is the same as rendering the whole conversation, and if not, why.

For sample conversations: `open(before) + answer + extend(after)` against the ids of the rendered whole, in which the answer
is what the template makes of its echo. Where they differ the session keeps to the sampled ids; the difference is what would
have been trained wrongly by rendering anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from agent_runtime.calls.canonical import canonical_text
from agent_runtime.chat import ChatMessage, Refusal, ToolSpec, ToolTemplate, ToolUse
from agent_runtime.types import IntArray

__all__ = ["RenderDrift", "SelfCheck", "self_check"]


class RenderDrift(StrEnum):
    """What rendering anew does to an answer."""

    TOKENS = "the same text is other tokens"
    WHITE_SPACE = "white space is trimmed"
    REASONING = "reasoning is dropped"
    ARGUMENTS = "tool calls are written otherwise"
    TEXT = "the answer's text is changed"
    HISTORY = "what stands around the answer is changed"
    REFUSED = "the template refuses the conversation"


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The result: names of sample conversations."""

    exact: tuple[str, ...]
    drift: Mapping[str, RenderDrift]


class Renderer(ToolTemplate, Protocol):
    """What of a template is checked."""

    end_id: int

    def encode(self, text: str) -> IntArray: ...

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], *, speak: bool) -> str: ...

    def after_answer(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], *, speak: bool
    ) -> str: ...


@dataclass(frozen=True, slots=True)
class _Sample:
    name: str
    before: tuple[ChatMessage, ...]
    answer: str
    """As it might be sampled."""
    after: tuple[ChatMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    exact: bool = False
    """A template that changes the words of this one is refused."""


_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_TOOLS = (
    ToolSpec("look", "Look.", '{"type": "object", "properties": {"path": {"type": "string"}}}'),
    ToolSpec("wait", "Wait.", '{"type": "object", "properties": {}}'),
)
_HEAD = (ChatMessage("system", "You help."), ChatMessage("user", "Go on."))
_NEXT = (ChatMessage("user", "And then?"),)
_RESULT = (ChatMessage("tool", "a file", tool_call_id="call_0"),)
_RESULTS = (*_RESULT, ChatMessage("tool", "done", tool_call_id="call_1"))
_CALL = ToolUse("call_0", "look", '{"path": "/b", "all": true}')
_CALLS = (_CALL, ToolUse("call_1", "wait", "{}"))


def self_check(template: Renderer) -> SelfCheck:
    """Compare both ways on every sample. Raise `ValueError` where even a plain answer would be changed."""
    exact: list[str] = []
    drift: dict[str, RenderDrift] = {}
    for sample in _samples(template):
        found = _compare(template, sample)
        if found is None:
            exact.append(sample.name)
        elif sample.exact and found not in (RenderDrift.TOKENS, RenderDrift.REASONING):
            raise ValueError(
                f"the tokenizer's chat template cannot be extended: {sample.name}: {found.value}. Set "
                "tokenizer.chat_template to one that shows plain answers as they are."
            )
        else:
            drift[sample.name] = found
    return SelfCheck(tuple(exact), drift)


def _samples(template: Renderer) -> Iterator[_Sample]:
    yield _Sample("plain answer", _HEAD, "I did it.", _NEXT, exact=True)
    yield _Sample("plain answer to a user only", _HEAD[1:], "I did it.\nAll of it: ü.", _NEXT, exact=True)
    yield _Sample("answer with white space at its ends", _HEAD, "  I did it.\n\n", _NEXT)
    yield _Sample("answer with reasoning", _HEAD, "<think>\nIt is easy.\n</think>\n\nI did it.", _NEXT)
    yield _Sample("plain answer with tools", _HEAD, "I did it.", _NEXT, _TOOLS)
    for name, calls, after in (("tool call", (_CALL,), _RESULT), ("parallel tool calls", _CALLS, _RESULTS)):
        told = _told(template, calls)
        if told is None:
            continue
        yield _Sample(name, _HEAD, told, after, _TOOLS)
        yield _Sample(f"{name}, spaced otherwise", _HEAD, told.replace('": ', '" :  '), after, _TOOLS)
        yield _Sample(f"{name} after reasoning", _HEAD, f"<think>\nHm.\n</think>\n\n{told}", after, _TOOLS)


def _told(template: Renderer, calls: tuple[ToolUse, ...]) -> str | None:
    """Return calls as the template itself writes them after the prompt; None where it cannot."""
    try:
        prompt = template.render(_HEAD, _TOOLS, speak=True)
        whole = template.render(
            (*_HEAD, ChatMessage("assistant", "", tool_calls=calls), *_NEXT), _TOOLS, speak=False
        )
        after = template.after_answer(_NEXT, _TOOLS, speak=False)
    except Refusal:
        return None
    if not whole.startswith(prompt) or not whole.endswith(after):
        return None
    return whole[len(prompt) : len(whole) - len(after)]


def _compare(template: Renderer, sample: _Sample) -> RenderDrift | None:
    sampled = np.append(template.encode(sample.answer), np.int32(template.end_id))
    said = template.parse(sampled, sample.tools)
    echo = ChatMessage("assistant", said.text, said.reasoning, said.tool_calls)
    try:
        before = template.open(sample.before, sample.tools)
        after = template.extend(sample.after, sample.tools, closed=True)
        whole = template.render((*sample.before, echo, *sample.after), sample.tools, speak=True)
        prompt = template.render(sample.before, sample.tools, speak=True)
        following = template.after_answer(sample.after, sample.tools, speak=True)
    except Refusal:
        return RenderDrift.REFUSED
    if np.array_equal(np.concatenate([before, sampled, after]), template.encode(whole)):
        return None
    if not whole.startswith(prompt) and prompt.rstrip().endswith("<think>"):
        return RenderDrift.REASONING  # the prompt opens it, and the history never shows it
    if not whole.startswith(prompt) or not whole.endswith(following):
        return RenderDrift.HISTORY
    return _reason(sample.answer, whole[len(prompt) : len(whole) - len(following)], bool(said.tool_calls))


def _reason(sampled: str, shown: str, calls: bool) -> RenderDrift:
    if sampled == shown:
        return RenderDrift.TOKENS
    plain, again = canonical_text(sampled), canonical_text(shown)
    if calls and not _THOUGHT.search(sampled):
        return RenderDrift.ARGUMENTS
    if plain == again:
        return RenderDrift.WHITE_SPACE
    if _THOUGHT.sub("", plain) == _THOUGHT.sub("", again):
        return RenderDrift.REASONING
    return RenderDrift.ARGUMENTS if calls else RenderDrift.TEXT
