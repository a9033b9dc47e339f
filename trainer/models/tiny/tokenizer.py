"""The tiny policy's tokenizer and chat template: bytes, a few whole words and special tokens. Lossless.

Used by the `tiny` engine. Text never yields a special token, so an observation cannot fake a role or an end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from agent_runtime.policy import Message
from agent_runtime.types import IntArray
from rock_env.errors import InvalidArgument
from trainer.models.saved import read_saved

__all__ = [
    "ASSISTANT",
    "DEFAULT_WORDS",
    "END",
    "NEWLINE",
    "PAD",
    "SPECIALS",
    "SYSTEM",
    "USER",
    "TinyChatTemplate",
    "TinyTokenizer",
]

PAD, SYSTEM, USER, ASSISTANT, END = range(5)
SPECIALS = 5
"""Ids below are special tokens. `END` is the last, and the only one a policy may sample."""
_FIRST_BYTE = SPECIALS
NEWLINE = _FIRST_BYTE + ord("\n")
_FIRST_WORD = _FIRST_BYTE + 256
_FORMAT = "ale-tiny-tokenizer-1"
_CACHED_TEXTS = 65536  # observations repeat a lot; a grid of 40 tokens costs about 300 bytes

DEFAULT_WORDS = ("left", "down", "right", "up", "Left", "Down", "Right", "Up", "√")
"""Words that are one token. Position fixes the id: append only, and a saved model brings its own list."""


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file `TinyTokenizer.save` writes."""

    format: str
    words: tuple[str, ...]


class TinyTokenizer:
    """Text to ids and back. Ids: 5 specials, 256 UTF-8 bytes, then `words`.

    A word of letters matches only where no letter touches it, so that grids stay one character per token; other words
    (symbols such as √) match anywhere. `decode(encode(text)) == text` for every text that UTF-8 can encode.
    """

    def __init__(self, words: Sequence[str] = DEFAULT_WORDS) -> None:
        self.words = tuple(words)
        if len(set(self.words)) != len(self.words) or "" in self.words:
            raise InvalidArgument(f"tokenizer words must be distinct and not empty, got {self.words!r}.")
        self.size = _FIRST_WORD + len(self.words)
        self._ids = {word: _FIRST_WORD + i for i, word in enumerate(self.words)}
        parts = [
            rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])"
            if word.isascii() and word.isalpha()
            else re.escape(word)
            for word in sorted(self.words, key=len, reverse=True)
        ]
        self._pattern = re.compile("|".join(parts) or r"(?!)")
        self._bytes = [b""] * _FIRST_BYTE + [bytes([value]) for value in range(256)]
        self._bytes += [word.encode() for word in self.words]
        self.encode = lru_cache(maxsize=_CACHED_TEXTS)(self._encode)

    def __reduce__(self) -> tuple[object, ...]:
        return (TinyTokenizer, (self.words,))  # the cache stays behind

    def _encode(self, text: str) -> IntArray:
        """Return the ids of `text` as a read-only array."""
        pieces: list[IntArray] = []
        start = 0
        for match in self._pattern.finditer(text):
            if match.start() > start:
                pieces.append(_byte_ids(text[start : match.start()]))
            pieces.append(np.array([self._ids[match.group()]], np.int32))
            start = match.end()
        if start < len(text):
            pieces.append(_byte_ids(text[start:]))
        ids = np.concatenate(pieces) if pieces else np.zeros(0, np.int32)
        ids.flags.writeable = False
        return ids

    def decode(self, ids: IntArray) -> str:
        """Return the text of `ids`, specials left out; bytes that are not UTF-8 become U+FFFD."""
        return b"".join([self._bytes[i] for i in ids.tolist()]).decode(errors="replace")

    def save(self, path: Path) -> None:
        """Write the word list to `path`."""
        path.write_bytes(msgspec.json.encode(_Saved(format=_FORMAT, words=self.words)))

    @staticmethod
    def read(path: Path) -> TinyTokenizer:
        """Read what `save` wrote. Raise `InvalidArgument` for anything else."""
        saved = read_saved(
            path,
            _Saved,
            expected=_FORMAT,
            cannot=f"cannot read the tokenizer {path}",
            remedy="Export the model again.",
            old="Export the model with this version.",
        )
        return TinyTokenizer(saved.words)


def _byte_ids(text: str) -> IntArray:
    return np.frombuffer(text.encode(), np.uint8).astype(np.int32) + np.int32(_FIRST_BYTE)


class TinyChatTemplate:
    """The tiny policy's `ChatTemplate`: `<|user|>observation<|assistant|>action<|end|>` and so on.

    System messages are left out: the policy is trained for one environment from scratch, so a constant instruction
    would only cost time.
    """

    def __init__(self, tokenizer: TinyTokenizer, max_context: int) -> None:
        self.max_context = max_context
        self.tokenizer = tokenizer

    def open(self, messages: Sequence[Message]) -> IntArray:
        """Return the prompt for a fresh context, ending where the assistant begins to speak."""
        return self._render(messages, [])

    def extend(self, messages: Sequence[Message], *, closed: bool) -> IntArray:
        """Return what follows a completion: its end token if it lacks one, `messages`, the assistant's opening."""
        return self._render(messages, [] if closed else [_mark(END)])

    def encode_completion(self, text: str, prompt_ids: IntArray | None = None) -> IntArray:
        """Return the ids of an assistant message nobody sampled, end token included."""
        return np.concatenate((self.tokenizer.encode(text), _mark(END)))

    def decode(self, ids: IntArray, prompt_ids: IntArray | None = None) -> str:
        """Return the text of sampled ids, without special tokens."""
        return self.tokenizer.decode(ids)

    def _render(self, messages: Sequence[Message], pieces: list[IntArray]) -> IntArray:
        for message in messages:
            if message.role == "user":
                pieces += (_mark(USER), self.tokenizer.encode(message.content))
            elif message.role == "assistant":
                pieces += (_mark(ASSISTANT), self.tokenizer.encode(message.content), _mark(END))
        pieces.append(_mark(ASSISTANT))
        return np.concatenate(pieces)


def _mark(special: int) -> IntArray:
    return np.array([special], np.int32)
