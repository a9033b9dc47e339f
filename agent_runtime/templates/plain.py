"""A `ToolTemplate` in bytes, without any library: the reference for others, for tests, and for models begun from nothing.

Ids: 5 special tokens, then the 256 bytes; the same as the `tiny` engine's, whose tokenizer adds words (give its `encode` and
`decode` for those). Text never yields a special token. An answer that is shown again is the same ids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from agent_runtime.chat import ChatMessage, Parsed, ToolSpec
from agent_runtime.templates.textual import call_text, describe_tools, read_hermes, response_text
from agent_runtime.types import IntArray

__all__ = ["ASSISTANT", "END", "FIRST_BYTE", "SYSTEM", "USER", "PlainTemplate"]

SYSTEM, USER, ASSISTANT, END = range(1, 5)
"""Id 0 pads."""
FIRST_BYTE = 5


def _encode(text: str) -> IntArray:
    raw = text.encode("utf-8", "replace")
    return np.frombuffer(raw, np.uint8).astype(np.int32) + np.int32(FIRST_BYTE)


def _decode(ids: IntArray) -> str:
    raw: IntArray = ids[(ids >= FIRST_BYTE) & (ids < FIRST_BYTE + 256)] - FIRST_BYTE
    return raw.astype(np.uint8).tobytes().decode(errors="replace")


class PlainTemplate:
    """Messages as `<role>text`, answers closed by `END`; tools and their results as text (see `textual`)."""

    name = "plain"

    def __init__(
        self,
        max_context: int,
        *,
        encode: Callable[[str], IntArray] = _encode,
        decode: Callable[[IntArray], str] = _decode,
    ) -> None:
        self.max_context = max_context
        self._encode = encode
        self._decode = decode

    def open(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec]) -> IntArray:
        """Return the prompt of a fresh context; the tools stand before everything else."""
        told = (ChatMessage("system", describe_tools(tools)),) if tools else ()
        return self._render((*told, *messages), [])

    def extend(self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec], *, closed: bool) -> IntArray:
        """Return what follows a completion: its end token if it lacks one, `messages`, the assistant's opening."""
        return self._render(messages, [] if closed else [_mark(END)])

    def encode_answer(self, text: str) -> IntArray:
        """Return the ids of an answer with this text, end token included, as a policy would sample them."""
        return np.concatenate([self._encode(text), _mark(END)])

    def parse(self, ids: IntArray, tools: Sequence[ToolSpec]) -> Parsed:
        """Return what sampled ids say."""
        return read_hermes(self._decode(ids[ids > END]), tools)

    def _render(self, messages: Sequence[ChatMessage], pieces: list[IntArray]) -> IntArray:
        for message in messages:
            if message.role == "system":
                pieces += (_mark(SYSTEM), self._encode(message.content))
            elif message.role == "assistant":
                calls = [call_text(call) for call in message.tool_calls]
                text = "\n".join(filter(None, [message.content, *calls]))
                pieces += (_mark(ASSISTANT), self._encode(text), _mark(END))
            else:
                text = response_text(message) if message.role == "tool" else message.content
                pieces += (_mark(USER), self._encode(text))
        pieces.append(_mark(ASSISTANT))
        return np.concatenate(pieces)


def _mark(special: int) -> IntArray:
    return np.array([special], np.int32)
