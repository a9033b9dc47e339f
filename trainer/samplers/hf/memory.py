"""What a sampler remembers over turns: keys and values of finished requests, found by the longest common prefix of ids.

Bounded in tokens; what was not used for longest leaves first. Entries are of one version of the weights: who loads others
clears it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import torch

from agent_runtime.types import IntArray

__all__ = ["Remembered", "SessionMemory", "common_prefix"]


def common_prefix(one: IntArray, two: IntArray) -> int:
    """Return how many first ids are equal."""
    length = min(len(one), len(two))
    same = one[:length] == two[:length]
    return length if same.all() else int(same.argmin())


@dataclass(frozen=True, slots=True, eq=False)
class Remembered:
    """One remembered sequence."""

    session: str
    ids: IntArray
    data: torch.Tensor
    """Its keys and values, `[L, 2, len(ids), H, D]`."""


class SessionMemory:
    """Remembered sequences of all sessions. Not safe for threads."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._kept: OrderedDict[int, Remembered] = OrderedDict()
        self._next = 0
        self.tokens = 0
        """How many tokens are remembered."""

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, ids: IntArray, session: str | None = None) -> tuple[int, Remembered | None]:
        """Return how many first ids of `ids` some entry has, and that entry, which counts as used.

        `session`: look at its entries only.
        """
        best, found = 0, None
        for number, kept in self._kept.items():
            if session is not None and kept.session != session:
                continue
            length = common_prefix(kept.ids, ids)
            if length > best:
                best, found = length, number
        if found is None:
            return 0, None
        self._kept.move_to_end(found)
        return best, self._kept[found]

    def wants(self, tokens: int) -> bool:
        """Return whether a sequence of this length can be kept at all."""
        return 0 < tokens <= self._max_tokens

    def keep(self, kept: Remembered) -> None:
        """Remember a sequence in place of those of its session that it continues; the oldest leave where it is too much."""
        for number, other in list(self._kept.items()):
            if other.session == kept.session and common_prefix(other.ids, kept.ids) == len(other.ids):
                self._drop(number)
        self._kept[self._next] = kept
        self._next += 1
        self.tokens += len(kept.ids)
        while self.tokens > self._max_tokens:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self.tokens = 0

    def _drop(self, number: int) -> None:
        self.tokens -= len(self._kept.pop(number).ids)
