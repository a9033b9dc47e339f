"""A chat template over a Hugging Face tokenizer: rendered by Jinja, extended without re-tokenising what was sampled.

Built by the engines that run Hugging Face models. The tokenizer is passed in: nothing here imports transformers.

Only text that nobody sampled is ever encoded. What stands between an answer and the next prompt is cut out of a
rendered sample conversation: the text after a sentinel that takes the answer's place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from agent_runtime.policy import Message
from agent_runtime.types import IntArray

__all__ = ["SENTINEL", "HFChatTemplate", "HFTokenizer", "after_sentinel"]

SENTINEL = "answer-7f3a9c51e2"
"""Stands for an answer in a rendered conversation; plain text that survives trimming."""
_QUESTION = Message("user", "question")


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
        self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool
    ) -> Any: ...

    def encode(self, text: str, *, add_special_tokens: bool) -> Any: ...

    def decode(
        self, token_ids: Any, *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool
    ) -> Any: ...


class HFChatTemplate:
    """A `ChatTemplate` whose end token is whatever the tokenizer's template writes after an assistant message."""

    def __init__(self, tokenizer: HFTokenizer, max_context: int) -> None:
        """Raise `ValueError` for a template that rewrites answers or ends them without a special token."""
        self._tokenizer = tokenizer
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

    def open(self, messages: Sequence[Message]) -> IntArray:
        """Return the prompt for a fresh context, ending where the assistant begins to speak."""
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
        text: str = self._tokenizer.apply_chat_template(
            [{"role": message.role, "content": message.content} for message in messages],
            tokenize=False,
            add_generation_prompt=speak,
        )
        return text

    def _after_answer(self, messages: Sequence[Message]) -> str:
        """Return the text between an answer and the next one; the closing of the answer if no messages follow."""
        answer = Message("assistant", SENTINEL)
        return after_sentinel(self._render((_QUESTION, answer, *messages), speak=bool(messages)))

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids
