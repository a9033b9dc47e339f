"""The coder's chat template: observations as words, answers as tool calls with pointers into what was shown.

Only text that nobody sampled is ever encoded; an expert's action becomes the answer that says it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent_runtime.policy import Message
from agent_runtime.types import IntArray
from trainer.models.coder import grammar as coder_grammar
from trainer.models.coder.page import read_page
from trainer.models.coder.words import ASSISTANT, END, USER, CoderWords

__all__ = ["CoderChatTemplate"]


class CoderChatTemplate:
    """A `ChatTemplate`. System messages are left out: the policy is trained for its tools from scratch."""

    def __init__(self, words: CoderWords, max_context: int) -> None:
        self.words = words
        self.max_context = max_context

    def open(self, messages: Sequence[Message]) -> IntArray:
        """Return the prompt for a fresh context, ending where the assistant begins to speak."""
        return self._show(messages, np.zeros(0, np.int32))

    def extend(self, messages: Sequence[Message], *, closed: bool) -> IntArray:
        """Return what follows an answer: its end token if it lacks one, `messages`, the assistant's opening."""
        return self._show(messages, np.zeros(0, np.int32) if closed else _mark(END))

    def encode_completion(self, text: str, prompt_ids: IntArray | None = None) -> IntArray:
        """Return the ids of an answer nobody sampled, end token included; pointers need the prompt before it."""
        prompt = _mark(ASSISTANT) if prompt_ids is None else prompt_ids
        return coder_grammar.encode(text, read_page(prompt, self.words), self.words)

    def decode(self, ids: IntArray, prompt_ids: IntArray | None = None) -> str:
        """Return the action that sampled ids stand for after a prompt."""
        prompt = _mark(ASSISTANT) if prompt_ids is None else prompt_ids
        return coder_grammar.decode(ids, read_page(prompt, self.words), self.words)

    def _show(self, messages: Sequence[Message], ids: IntArray) -> IntArray:
        for message in messages:
            if message.role == "user":
                ids = np.concatenate((ids, _mark(USER), self.words.encode(message.content)))
            elif message.role == "assistant":
                ids = np.concatenate((ids, _mark(ASSISTANT)))
                ids = np.concatenate((ids, self.encode_completion(message.content, ids)))
        return np.concatenate((ids, _mark(ASSISTANT)))


def _mark(special: int) -> IntArray:
    return np.array([special], np.int32)
