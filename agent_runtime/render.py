"""A chat template over a Hugging Face tokenizer: rendered by Jinja, extended without re-tokenising what was sampled.

Built by the engines that run Hugging Face models. The tokenizer is passed in: nothing here imports transformers.

Only text that nobody sampled is ever encoded. What stands between an answer and the next prompt is cut out of a
rendered sample conversation: the text after a sentinel that takes the answer's place. Roles that a template does not take
are told in those that it does (`RoleRenderer`): no message is left out unsaid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from agent_runtime.chat import Refusal, RefusalKind
from agent_runtime.policy import Message, Thought
from agent_runtime.types import IntArray

__all__ = ["SENTINEL", "HFChatTemplate", "HFTokenizer", "RoleRenderer", "after_sentinel"]

SENTINEL = "answer-7f3a9c51e2"
"""Stands for an answer in a rendered conversation; plain text that survives trimming."""
_QUESTION = Message("user", "question")
_CLOSING = "\n</think>\n\n"
"""What Qwen 3 and SmolLM 3 write after a thought."""


def after_sentinel(text: str) -> str:
    """Return what a rendered conversation has after the sentinel. Raise `ValueError` where the template rewrote it."""
    _, found, after = text.partition(SENTINEL)
    if not found:
        raise ValueError(
            f"the tokenizer's chat template does not show an assistant message as it is: got {text!r}. "
            "Set tokenizer.chat_template to one that does."
        )
    return after


class HFTokenizer(Protocol):
    """The part of `transformers.PreTrainedTokenizerBase` that is used."""

    def apply_chat_template(
        self, conversation: Any, *, tools: Any, tokenize: bool, add_generation_prompt: bool
    ) -> Any: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> Any: ...

    def decode(
        self, token_ids: Any, *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> Any: ...


class RoleRenderer:
    """Renders conversations by a tokenizer's template, told in the roles that the template takes.

    A system message that it refuses (Gemma) or leaves out (Phi 3's first template; SmolLM 3 after the beginning) is the
    user's, and one message with the user's beside it. Where users and assistants must take turns (Gemma), neighbours of one
    role are one message.
    """

    def __init__(self, tokenizer: HFTokenizer) -> None:
        self._tokenizer = tokenizer
        asked, answered = {"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}
        system = {"role": "system", "content": SENTINEL}
        self._first = SENTINEL in self._tried([system, asked])
        self._later = SENTINEL in self._tried([asked, answered, system, asked])
        self._in_turn = not self._tried([asked, answered, asked, asked])

    def text(self, messages: Sequence[dict[str, Any]], *, speak: bool, tools: Any = None) -> str:
        """Return the text of a conversation; `speak`: up to where the assistant begins. Raise `Refusal`."""
        return self._rendered(self._told(messages), speak=speak, tools=tools, sent=messages)

    def _rendered(
        self,
        messages: list[dict[str, Any]],
        *,
        speak: bool,
        tools: Any,
        sent: Sequence[dict[str, Any]] = (),
    ) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages, tools=tools, tokenize=False, add_generation_prompt=speak
            )
        except Exception as error:  # a template is a program of somebody else's, run on an agent's data
            roles = " ".join(message["role"] for message in sent or messages)
            raise Refusal(
                RefusalKind.BAD_REQUEST,
                f"the model's chat template cannot show this conversation: {error}. Got messages of {roles!r}. Send an "
                "order of messages that the model knows.",
            ) from error
        return text

    def _tried(self, messages: list[dict[str, Any]]) -> str:
        """Return a conversation as the template shows it, in just these roles; empty where it refuses."""
        try:
            return self._rendered(messages, speak=True, tools=None)
        except Refusal:
            return ""

    def _told(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        moved = False
        alone = self._in_turn and not any(message["role"] == "user" for message in messages)
        for at, message in enumerate(messages):
            before, beside = told[-1] if told else {"role": ""}, moved
            moved = message["role"] == "system" and (alone or not (self._later if at else self._first))
            if moved:
                if not message["content"]:
                    continue
                message = {**message, "role": "user"}
            same = message["role"] == before["role"] and message["role"] in ("user", "assistant")
            plain = "tool_calls" not in message and "tool_calls" not in before
            if same and plain and (self._in_turn or moved or beside):
                told[-1] = {**before, "content": f"{before['content']}\n\n{message['content']}"}
            else:
                told.append(message)
        return told


class HFChatTemplate:
    """A `ChatTemplate` whose end token is whatever the tokenizer's template writes after an assistant message."""

    def __init__(self, tokenizer: HFTokenizer, max_context: int) -> None:
        """Raise `ValueError` for a template that rewrites answers or ends them without a special token."""
        self._tokenizer = tokenizer
        self._renderer = RoleRenderer(tokenizer)
        self.max_context = max_context
        closing = self._after_answer(())
        ids = self._encode(closing)
        if not ids or self.decode(np.array(ids[:1], np.int32)):
            raise ValueError(
                "the tokenizer's chat template ends an assistant message without a special token: got "
                f"{closing!r}. Use the model's instruct variant, or set tokenizer.chat_template."
            )
        self.end_id = ids[0]
        """The token that ends an answer; the engine stops sampling at it."""
        self.thought = self._thought()
        """How the model thinks; None for one that does not."""

    def _thought(self) -> Thought | None:
        tags = [self._encode(tag) for tag in ("<think>", "</think>")]
        closing = self._encode(_CLOSING)
        if any(len(ids) != 1 for ids in tags):
            return None
        (start,), (end,) = tags
        shown = self.decode(np.array([start, end], np.int32)).replace(" ", "")
        if shown != "<think></think>" or closing.count(end) != 1:
            return None
        told = [token for token in self.open((_QUESTION,)).tolist() if token in (start, end)]
        return Thought(start, end, told[-1:] == [start], np.array(closing, np.int32))

    def open(self, messages: Sequence[Message]) -> IntArray:
        """Return the prompt for a fresh context, ending where the assistant begins to speak. Raise `Refusal`."""
        return np.array(self._encode(self._render(messages, speak=True)), np.int32)

    def extend(self, messages: Sequence[Message], *, closed: bool) -> IntArray:
        """Return the tokens after a completion that show `messages` and let the assistant speak again."""
        ids = self._encode(self._after_answer(messages))
        return np.array(ids[1:] if closed else ids, np.int32)

    def encode_completion(self, text: str, prompt_ids: IntArray | None = None) -> IntArray:
        """Return the ids of an answer nobody sampled, end token included."""
        return np.array([*self._encode(text), self.end_id], np.int32)

    def decode(self, ids: IntArray, prompt_ids: IntArray | None = None) -> str:
        """Return the text of sampled ids, without special tokens."""
        text: str = self._tokenizer.decode(
            ids.tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def _render(self, messages: Sequence[Message], *, speak: bool) -> str:
        told = [{"role": message.role, "content": message.content} for message in messages]
        return self._renderer.text(told, speak=speak)

    def _after_answer(self, messages: Sequence[Message]) -> str:
        """Return the text between an answer and the next one; the closing of the answer if no messages follow."""
        answer = Message("assistant", SENTINEL)
        return after_sentinel(self._render((_QUESTION, answer, *messages), speak=bool(messages)))

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids
