"""A `ToolTemplate` over a Hugging Face tokenizer: its own Jinja template renders, what was sampled is never tokenised again.

The tokenizer is passed in: nothing here imports transformers. A `Family` says how tools are told and how answers are read.
What stands between an answer and the next prompt is cut out of a rendered sample conversation: the text after a sentinel
that takes the answer's place. `self_check` (run at construction) says where this is the same as rendering everything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

import numpy as np

from agent_runtime.chat import ChatMessage, Parsed, ToolSpec, ToolUse
from agent_runtime.render import SENTINEL, HFTokenizer, RoleRenderer, after_sentinel
from agent_runtime.templates.check import self_check
from agent_runtime.templates.textual import call_text, describe_tools, response_text, tool_json
from agent_runtime.types import IntArray

__all__ = ["Family", "JinjaToolTemplate", "ToolTokenizer"]

_QUESTION = ChatMessage("user", "question")


class ToolTokenizer(HFTokenizer, Protocol):
    """The part of `transformers.PreTrainedTokenizerBase` that is used."""

    chat_template: Any
    all_special_ids: list[int]
    """Those that have a name, as `eos_token`; Gemma, Phi and Llama have more."""
    added_tokens_decoder: Any
    """Tokens beyond the vocabulary, by id: each says whether it is `special`."""


class Reader(Protocol):
    """Reads an answer's text (see `textual`)."""

    def __call__(self, text: str, tools: Sequence[ToolSpec], *, thinking: bool = False) -> Parsed: ...


@dataclass(frozen=True, slots=True)
class Family:
    """How one family of models is told of tools, and how it calls them."""

    name: str
    read: Reader
    native: bool
    """The tokenizer's template takes tools, calls and results; otherwise they are text in ordinary messages."""
    keep: tuple[str, ...] = ()
    """Special tokens that mean something in an answer."""
    calls_text: Callable[[ChatMessage], str] | None = None
    """Returns an answer's text with its calls, for templates that take but one call and no text beside it."""


class JinjaToolTemplate:
    """A chat template with tools, of the family given."""

    def __init__(self, tokenizer: ToolTokenizer, max_context: int, family: Family) -> None:
        """Raise `ValueError` for a template that rewrites plain answers or ends them without a special token."""
        self.name = family.name
        self.max_context = max_context
        self._tokenizer = tokenizer
        self._family = family
        kept = {self.encode(token)[0] for token in family.keep if len(self.encode(token)) == 1}
        added = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._hidden = np.array(sorted((added | set(tokenizer.all_special_ids)) - kept), np.int32)
        self._renderer = RoleRenderer(tokenizer)
        closing = self.after_answer((), (), speak=False)
        ids = self.encode(closing)
        if not len(ids) or ids[0] not in self._hidden:
            raise ValueError(
                "the tokenizer's chat template ends an assistant message without a special token: got "
                f"{closing!r}. Use the model's instruct variant, or set tokenizer.chat_template."
            )
        self.end_id = int(ids[0])
        """The token that ends an answer."""
        self._thinking = self.render((_QUESTION,), (), speak=True).rstrip().endswith("<think>")
        self.check = self_check(self)
        """What sampling and rendering agree on, and where they drift apart, with the reason."""

    def open(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> IntArray:
        """Return the prompt of a fresh context. Raise `Refusal` (`BAD_REQUEST`) where the template refuses the history."""
        return self.encode(self.render(messages, tools, speak=True))

    def extend(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], *, closed: bool) -> IntArray:
        """Return the tokens after a completion that show `messages` and let the assistant speak again."""
        ids = self.encode(self.after_answer(messages, tools, speak=True))
        return ids[1:] if closed else ids

    def parse(self, ids: IntArray, tools: Sequence[ToolSpec]) -> Parsed:
        """Return what sampled ids say. Special tokens say nothing, but for those the family keeps."""
        shown = ids[~np.isin(ids, self._hidden)].tolist()
        text = self._tokenizer.decode(shown, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return self._family.read(text, tools, thinking=self._thinking)

    def encode(self, text: str) -> IntArray:
        """Return the ids of text that nobody sampled; special tokens in it count as such."""
        text = text.encode("utf-8", "replace").decode()  # JSON may hold half a surrogate pair
        return np.array(self._tokenizer.encode(text, add_special_tokens=False), np.int32)

    def render(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], *, speak: bool) -> str:
        """Return the text of a conversation; `speak`: up to where the assistant begins. Raise `Refusal`."""
        told = self._native(messages) if self._family.native else _as_text(messages, tools)
        offered = [tool_json(tool) for tool in tools] if self._family.native and tools else None
        return self._renderer.text(told, speak=speak, tools=offered)

    def after_answer(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], *, speak: bool) -> str:
        """Return the text between an answer and the next one.

        Raise `Refusal`, and `ValueError` for a template that rewrites answers.
        """
        answer = ChatMessage("assistant", SENTINEL)
        return after_sentinel(self.render((_QUESTION, answer, *messages), tools, speak=speak))

    def _native(self, messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
        names: dict[str, str] = {}
        told: list[dict[str, Any]] = []
        for message in messages:
            one: dict[str, Any] = {"role": message.role, "content": message.content}
            if message.role == "tool":
                one |= {"tool_call_id": message.tool_call_id, "name": names.get(message.tool_call_id, "")}
            if message.reasoning:
                one["reasoning_content"] = message.reasoning
            calls = message.tool_calls
            names |= {call.id: call.name for call in calls}
            as_text = self._family.calls_text
            if calls and as_text is not None and (len(calls) > 1 or message.content.strip()):
                one["content"] = as_text(message)
            elif calls:
                one["tool_calls"] = [_native_call(call) for call in calls]
            told.append(one)
        return told


def _native_call(call: ToolUse) -> dict[str, Any]:
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = call.arguments
    function = {"name": call.name, "arguments": arguments}
    return {"type": "function", "id": call.id, "function": function}


def _as_text(messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return ordinary messages that tell of tools: in the system message, in answers, in messages of the user's."""
    told = list(messages)
    if tools:
        words = describe_tools(tools)
        if told and told[0].role == "system":
            told[0] = replace(told[0], content=f"{told[0].content}\n\n{words}")
        else:
            told.insert(0, ChatMessage("system", words))
    shown: list[dict[str, Any]] = []
    for is_result, run in groupby(told, key=lambda message: message.role == "tool"):
        if is_result:
            shown.append({"role": "user", "content": "\n".join(map(response_text, run))})
            continue
        for message in run:
            calls = [call_text(call) for call in message.tool_calls]
            content = "\n".join(filter(None, [message.content, *calls]))
            shown.append({"role": message.role, "content": content})
    return shown
