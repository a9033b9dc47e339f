"""Per-chunk reductions of per-token values, vectorised over the whole batch.

Called by losses that weight or mask whole chunks (IPA). Chunks come from `chunk_index_BT`, never from runs of
the mask, so adjacent chunks, chunks over several rows and any packing give the same numbers. No gradient
passes.

Shapes: B rows, T tokens, C chunks of the batch (a microbatch keeps C; absent chunks have count 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainer.data.batch import TrainBatch

__all__ = ["Chunks", "chunks_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """The chunks of a batch, ready to reduce over."""

    index_N: torch.Tensor
    """int64, flattened BT; the value C where a token belongs to no chunk."""
    mask_BT: torch.Tensor
    count_C: torch.Tensor
    """Trained tokens per chunk."""

    def mean(self, values_BT: torch.Tensor) -> torch.Tensor:
        """Return each chunk's mean (shape C, 0 where absent); entries outside chunks may be anything."""
        values_N = torch.where(self.mask_BT, values_BT.detach(), 0).reshape(-1)
        sums = values_N.new_zeros(len(self.count_C) + 1).index_add_(0, self.index_N, values_N)[:-1]
        return sums / self.count_C.clamp(min=1)

    def spread(self, values_C: torch.Tensor) -> torch.Tensor:
        """Return each chunk's value at its tokens (shape BT), 0 outside chunks."""
        padded = torch.cat([values_C, values_C.new_zeros(1)])
        return padded[self.index_N].reshape(self.mask_BT.shape)


def chunks_of(batch: TrainBatch) -> Chunks:
    """Return the batch's chunks over its trained tokens."""
    mask_BT = batch.loss_mask_BT
    index_N = torch.where(mask_BT, batch.chunk_index_BT, batch.chunks).reshape(-1)
    return Chunks(index_N, mask_BT, torch.bincount(index_N, minlength=batch.chunks + 1)[:-1])
