"""The running rows of a continuous batch: who they are, on the host and on the device. Row r is slot r of the cache.

Per token nothing here is a Python loop: columns are arrays over the slots. Shapes: S slots, C tokens of context.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import torch
from numpy.typing import NDArray

from agent_runtime.policy import SampleRequest

__all__ = ["Recall", "Row", "Rows"]

_MASK64 = (1 << 64) - 1


class Recall(Enum):
    """What a request may use of, and leave in, the memory of sessions."""

    NONE = 0
    OWN = 1
    """It uses entries of its own session: what it gets does not depend on when others were answered."""
    ALL = 2


@dataclass(slots=True, eq=False)
class Row:
    """A request that is being answered."""

    ticket: int
    request: SampleRequest
    cached_tokens: int = 0
    memory: Recall = Recall.ALL
    spans: list[list[int]] = field(default_factory=list)
    """[version, first token of the completion] of each stretch."""


class Rows:
    """The columns of the running rows. The first `len(self)` slots are taken, without holes."""

    def __init__(self, slots: int, max_context: int, device: torch.device) -> None:
        self._device = device
        self.rows: list[Row] = []
        self.ids_SC = np.zeros((slots, max_context), np.int32)
        self.logprobs_SC = np.zeros((slots, max_context), np.float32)
        self.prompt_S = np.zeros(slots, np.int64)
        self.length_S = np.zeros(slots, np.int64)
        """Tokens of prompt and completion."""
        self.cached_S = np.zeros(slots, np.int64)
        """Of these, how many are in the cache."""
        self.limit_S = np.zeros(slots, np.int64)
        """Length at which a row ends."""
        self._seed_S = np.zeros(slots, np.int64)
        self._temperature_S = np.zeros(slots, np.float32)
        self._top_p_S = np.ones(slots, np.float32)
        self._whole = torch.zeros(5, slots, dtype=torch.int64, device=device)
        self._real = torch.zeros(2, slots, dtype=torch.float32, device=device)
        self._stale = True

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def slots(self) -> int:
        """Return how many rows there can be."""
        return len(self.ids_SC)

    @property
    def unread(self) -> NDArray[np.int64]:
        """Return how many tokens of each row the model has not seen yet; a row with one is ready to be sampled."""
        return self.length_S[: len(self)] - self.cached_S[: len(self)]

    def add(self, row: Row, *, limit: int, cached: int) -> int:
        """Take the next slot for a request and return it."""
        slot, request = len(self.rows), row.request
        self.rows.append(row)
        count = len(request.prompt_ids)
        self.ids_SC[slot, :count] = request.prompt_ids
        self.prompt_S[slot] = self.length_S[slot] = count
        self.cached_S[slot], self.limit_S[slot] = cached, limit
        self._seed_S[slot] = np.array(request.seed & _MASK64, np.uint64).view(np.int64)
        self._temperature_S[slot] = request.params.temperature
        self._top_p_S[slot] = request.params.top_p
        self._stale = True
        return slot

    def remove(self, slot: int) -> int:
        """Free a slot; the last row moves into it. Return the slot that row came from."""
        last = len(self.rows) - 1
        if slot != last:
            count = int(self.length_S[last])
            for table in (self.ids_SC, self.logprobs_SC):
                table[slot, :count] = table[last, :count]
            for column in (
                self.prompt_S,
                self.length_S,
                self.cached_S,
                self.limit_S,
                self._seed_S,
                self._temperature_S,
                self._top_p_S,
            ):
                column[slot] = column[last]
            self.rows[slot] = self.rows[last]
        del self.rows[last]
        self._stale = True
        return last

    def touch(self) -> None:
        """Say that the columns changed on the host."""
        self._stale = True

    @property
    def cuts(self) -> bool:
        """Return whether some row has a top_p below 1."""
        return bool((self._top_p_S[: len(self)] < 1.0).any())

    def on_device(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what a step needs: last id, tokens in the cache, index of the next token, seed, 1 for rows that are ready
        (`[5, S]`, int64); temperature and top_p (`[2, S]`). Copied to the device only when the rows changed; otherwise the
        step itself keeps them.
        """
        if self._stale:
            count = len(self)
            whole, real = np.zeros(self._whole.shape, np.int64), np.ones(self._real.shape, np.float32)
            at = np.arange(count)
            whole[0, :count] = self.ids_SC[at, self.length_S[:count] - 1]
            whole[1, :count] = self.cached_S[:count]
            whole[2, :count] = self.length_S[:count] - self.prompt_S[:count]
            whole[3, :count] = self._seed_S[:count]
            whole[4, :count] = self.unread == 1
            real[0, :count], real[1, :count] = self._temperature_S[:count], self._top_p_S[:count]
            self._whole.copy_(torch.from_numpy(whole))
            self._real.copy_(torch.from_numpy(real))
            self._stale = False
        return self._whole, self._real
