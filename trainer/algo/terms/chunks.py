"""Per-chunk reductions of per-token values, vectorised over the whole batch.

Chunks come from `chunk_index_BT`, never from runs of the mask, so adjacent chunks, chunks over several rows and any
packing give the same numbers. No gradient passes.

Tokens of a chunk mostly lie side by side, so values are first summed over runs of equal chunk index, which is one pass
over memory, and then, as there are few of them, runs into chunks: `benchmarks.chunks` compares with a loop.

Shapes: B rows, T tokens, R runs, C chunks of the batch (a microbatch keeps C; absent chunks have count 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from trainer.data.batch import TrainBatch

__all__ = ["Chunks", "chunks_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """The chunks of a batch, ready to reduce over."""

    chunk_R: torch.Tensor
    """int64; the chunk of each run of neighbouring tokens, C for a run that belongs to none."""
    length_R: torch.Tensor
    """int64; tokens of each run. Runs lie end to end and fill the flattened BT."""
    mask_BT: torch.Tensor
    count_C: torch.Tensor
    """Trained tokens per chunk."""

    def total(self, values_BT: torch.Tensor) -> torch.Tensor:
        """Return each chunk's sum (shape C, 0 where absent); entries outside chunks may be anything."""
        sums_R = torch.segment_reduce(
            values_BT.detach().reshape(-1), "sum", lengths=self.length_R, unsafe=True
        )
        # What is outside chunks, NaN included, is summed into the last place and left there.
        return sums_R.new_zeros(len(self.count_C) + 1).index_add_(0, self.chunk_R, sums_R)[:-1]

    def mean(self, values_BT: torch.Tensor) -> torch.Tensor:
        """Return each chunk's mean (shape C, 0 where absent); entries outside chunks may be anything."""
        return self.total(values_BT) / self.count_C.clamp(min=1)

    def spread(self, values_C: torch.Tensor) -> torch.Tensor:
        """Return each chunk's value at its tokens (shape BT), 0 outside chunks."""
        padded = torch.cat([values_C, values_C.new_zeros(1)])
        values_N = padded[self.chunk_R].repeat_interleave(self.length_R, output_size=self.mask_BT.numel())
        return values_N.reshape(self.mask_BT.shape)


def chunks_of(batch: TrainBatch) -> Chunks:
    """Return the batch's chunks over its trained tokens."""
    mask_BT = batch.loss_mask_BT
    index_N = torch.where(mask_BT, batch.chunk_index_BT, batch.chunks).reshape(-1)
    chunk_R, length_R = torch.unique_consecutive(index_N, return_counts=True)
    count_C = length_R.new_zeros(batch.chunks + 1).index_add_(0, chunk_R, length_R)[:-1]
    return Chunks(chunk_R, length_R, mask_BT, count_C)
