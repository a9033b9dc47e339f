"""The coder's tokenizer: words of code and prose, cut into pieces where they are rare. Lossless.

A token says what it is (a piece) and how it stands: first of its word, first with a space before, or a continuation. So one
word is one row of the embedding wherever it stands, and a pointer can copy a word without its space. A newline and the
indentation after it are one token. Text never yields a special token: an observation cannot fake a role, a tool or an end.
The pieces were learned from the training packages, tool replies and Python's library by `scripts/coder_vocabulary.py`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import resources
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from agent_runtime.types import IntArray
from rock_env.errors import InvalidArgument
from trainer.models.saved import read_saved

__all__ = [
    "ASSISTANT",
    "CONTINUED",
    "EDIT",
    "END",
    "INSERT",
    "INSERT_SPACED",
    "PAD",
    "RANGE",
    "REPLACE",
    "SPACED",
    "SPECIALS",
    "SUBMIT",
    "SYSTEM",
    "TEST",
    "TEXT",
    "UNDO",
    "USER",
    "VIEW",
    "CoderWords",
    "parts_of",
    "words_of",
]

PAD, SYSTEM, USER, ASSISTANT, END = range(5)
TEXT, VIEW, EDIT, UNDO, TEST, SUBMIT = range(5, 11)
"""What an answer begins with: the tool, or text as it is."""
REPLACE, RANGE, INSERT, INSERT_SPACED = range(11, 15)
"""What an edit does at the word it points to."""
SPECIALS = 15
_INDENTS = 25
_NEWLINE = SPECIALS
_SPACE = SPECIALS + _INDENTS
_FIRST_WORD = _SPACE + 1
FIRST, SPACED, CONTINUED = range(3)
_FORMAT = "ale-coder-words-1"
_CACHED_TEXTS = 16384

_WORD = re.compile(
    r"(?P<newline>\n *)"
    r"|(?P<spaces> +(?= ))"
    r"|(?P<space> ?)(?P<word>(?P<run>[=_!.^~*-])(?P=run){2,}|/?(?:[\w.-]+/)+[\w.-]*\w|[A-Za-z_][\w-]*\.(?:py|toml|md|txt)\b"
    r"|[A-Za-z_]\w*|\d+|==|!=|<=|>=|->|\+=|-=|\*=|\*\*|//|:=|[^\s])"
    r"|(?P<other>\s)"
)
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d|([^a-zA-Z0-9])\1*", re.DOTALL)


def words_of(text: str) -> Iterator[str]:
    """Yield the words of a text, as the tokenizer cuts it."""
    return (match["word"] for match in _WORD.finditer(text) if match["word"] is not None)


def parts_of(word: str) -> Iterator[str]:
    """Yield the parts that a rare word is cut into before pieces are looked for."""
    return (match.group() for match in _PARTS.finditer(word))


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    pieces: tuple[str, ...]


class CoderWords:
    """Text to ids and back. `decode(encode(text)) == text` for every text that UTF-8 can encode."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = tuple(pieces)
        if len(set(self.pieces)) != len(self.pieces) or "" in self.pieces:
            raise InvalidArgument("the pieces of a coder's tokenizer must be distinct and not empty.")
        self._texts = [bytes([value]) for value in range(256)] + [piece.encode() for piece in self.pieces]
        self._number = {piece: 256 + index for index, piece in enumerate(self.pieces)}
        self._longest = max(map(len, self.pieces), default=1)
        self.count = len(self._texts)
        self.size = _FIRST_WORD + 3 * self.count
        """Ids below are words and specials; a pointer to position p of its prompt is `size + p`."""
        self.rows = _FIRST_WORD + self.count
        """Distinct values of `piece_V`."""
        self.encode = lru_cache(maxsize=_CACHED_TEXTS)(self._encode)
        self._cut = lru_cache(maxsize=_CACHED_TEXTS)(self._pieces_of)
        self.piece_V, self.kind_V, self.indent_V, self.name_V = self._tables()

    def __reduce__(self) -> tuple[object, ...]:
        return (CoderWords, (self.pieces,))  # the caches stay behind

    def _tables(self) -> tuple[NDArray[np.int64], ...]:
        """Return per id: its piece (specials have rows of their own), its kind, its indentation and whether it names."""
        ids = np.arange(self.size)
        words = ids >= _FIRST_WORD
        piece_V = np.where(words, (ids - _FIRST_WORD) % self.count + _FIRST_WORD, ids)
        kind_V = np.where(words, (ids - _FIRST_WORD) // self.count, 3)
        newline = (ids >= _NEWLINE) & (ids < _SPACE)
        indent_V = np.where(newline, ids - _NEWLINE, -1)
        names = [
            text.isascii()
            and (text[:1].isalpha() or text[:1] == b"_")
            and not keyword.iskeyword(text.decode())
            for text in self._texts
        ]
        name_V = np.zeros(self.size, np.int64)
        name_V[_FIRST_WORD:] = np.tile(np.array(names, np.int64), 3)
        name_V[kind_V == CONTINUED] = 0
        return piece_V, kind_V, indent_V, name_V

    def is_start(self, ids: IntArray) -> NDArray[np.bool_]:
        """Return which ids begin a word."""
        return self.kind_V[ids] < CONTINUED

    def continuation(self, piece: str) -> int:
        """Return the id of a piece inside a word."""
        number = self._number.get(piece, piece.encode()[0])
        return _FIRST_WORD + CONTINUED * self.count + number

    def word(self, text: str, *, spaced: bool) -> tuple[int, ...]:
        """Return the ids of one word."""
        first, *rest = self._cut(text)
        kind = SPACED if spaced else FIRST
        return (
            _FIRST_WORD + kind * self.count + first,
            *(_FIRST_WORD + CONTINUED * self.count + piece for piece in rest),
        )

    def _encode(self, text: str) -> IntArray:
        ids: list[int] = []
        for match in _WORD.finditer(text):
            word = match["word"]
            if word is not None:
                ids += self.word(word, spaced=bool(match["space"]))
            elif match["newline"] is not None:
                indent = len(match["newline"]) - 1
                ids.append(_NEWLINE + min(indent, _INDENTS - 1))
                ids += [_SPACE] * max(0, indent - _INDENTS + 1)
            else:
                blank = match["spaces"] or match["other"]
                ids += [_SPACE] if blank == " " else self.word(blank, spaced=False)
        result = np.array(ids, np.int32)
        result.flags.writeable = False
        return result

    def _pieces_of(self, word: str) -> tuple[int, ...]:
        """Return the numbers of the pieces of a word: the longest known ones from the left, else bytes."""
        if word in self._number:
            return (self._number[word],)
        numbers: list[int] = []
        for part in parts_of(word):
            start = 0
            while start < len(part):
                for end in range(min(len(part), start + self._longest), start, -1):
                    number = self._number.get(part[start:end])
                    if number is not None:
                        numbers.append(number)
                        start = end
                        break
                else:
                    numbers += part[start].encode()
                    start += 1
        return tuple(numbers)

    def decode(self, ids: IntArray) -> str:
        """Return the text of `ids`, specials left out; bytes that are not UTF-8 become U+FFFD."""
        parts: list[bytes] = []
        for value in ids.tolist():
            if value >= _FIRST_WORD:
                kind, number = divmod(value - _FIRST_WORD, self.count)
                parts.append((b" " if kind == SPACED else b"") + self._texts[number])
            elif value >= _NEWLINE:
                parts.append(b" " if value == _SPACE else b"\n" + b" " * (value - _NEWLINE))
        return b"".join(parts).decode(errors="replace")

    def unspaced(self, ids: IntArray) -> IntArray:
        """Return the ids with their first as it stands without a space before it."""
        if not len(ids) or self.kind_V[ids[0]] != SPACED:
            return ids
        return np.concatenate((ids[:1] - np.int32(self.count), ids[1:]))

    def words(self, ids: IntArray) -> list[tuple[int, int]]:
        """Return (first, beyond) of each word, newline and space in `ids`; continuations belong to what they continue."""
        starts = np.flatnonzero(self.kind_V[ids] != CONTINUED).tolist()
        return list(pairwise([*starts, len(ids)]))

    def save(self, path: Path) -> None:
        """Write the pieces to `path`."""
        path.write_bytes(msgspec.json.encode(_Saved(format=_FORMAT, pieces=self.pieces)))

    @staticmethod
    def read(path: Path) -> CoderWords:
        """Read what `save` wrote. Raise `InvalidArgument` for anything else."""
        saved = read_saved(
            path,
            _Saved,
            expected=_FORMAT,
            cannot=f"cannot read the tokenizer {path}",
            remedy="Export the model again.",
            old="Export the model with this version.",
        )
        return CoderWords(saved.pieces)

    @staticmethod
    def built_in() -> CoderWords:
        """Return the tokenizer of a fresh model."""
        return CoderWords(tuple(msgspec.json.decode(_BUILT_IN.read_bytes(), type=list[str])))


_BUILT_IN = resources.files("trainer.models.coder") / "vocabulary.json"
