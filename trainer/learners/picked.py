"""The trained tokens of a batch, and the distinct sequences that their values hang on.

Used by `trainer.learners.torch_train`, which computes them, and by `trainer.learners.passes`, which counts them. Segments of
a packed row are sequences of their own.
Shapes: B rows, T tokens, S segments, U distinct ones, M trained tokens of the segment that has most, N trained tokens,
D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rock_env.errors import InvalidArgument
from trainer.data.batch import TrainBatch
from trainer.protocols.net import PolicyNet, ScoresItself

__all__ = ["Picked"]


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """The trained tokens of a batch, and the distinct sequences (one segment each) that their values hang on.

    Rollouts of one task often share prompt and action; what is the same is computed once, forward and backward.
    """

    tokens_UT: torch.Tensor
    at_UM: torch.Tensor
    """Position before each trained token; filled up with 0."""
    source_N: torch.Tensor
    """Index of the trained token's place in `at_UM`, flattened."""
    row_N: torch.Tensor
    column_N: torch.Tensor
    targets_N: torch.Tensor
    temperature_N: torch.Tensor | None
    """None: nothing is tempered."""

    def scored(self, net: ScoresItself) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the tokens' log-probabilities (`N`) and `hidden`, of a network that gives both at once."""
        return net.picked(self.tokens_UT, self.at_UM, self.source_N, self.targets_N)

    def hidden(self, net: PolicyNet | ScoresItself) -> torch.Tensor:
        """Return the final hidden states (`ND`) that the tokens' distributions come from."""
        if isinstance(net, ScoresItself):
            return self.scored(net)[1]
        # index_select, because its backward pass adds duplicates in a fixed order.
        return net.hidden_at(self.tokens_UT, self.at_UM).flatten(0, 1).index_select(0, self.source_N)

    def lay(self, values_N: torch.Tensor, batch: TrainBatch) -> torch.Tensor:
        """Return the values where their tokens stand (`BT`), 0 elsewhere."""
        empty_BT = torch.zeros(batch.tokens_BT.shape, device=values_N.device)
        return empty_BT.index_put((self.row_N, self.column_N), values_N)

    @staticmethod
    def of(batch: TrainBatch, device: torch.device) -> Picked | None:
        """Find the trained tokens; None if there are none. Segments without any are left out.

        The first token of a segment has no distribution; training it is refused with `InvalidArgument`.
        """
        segments_BT, tokens_BT = batch.segment_ids_BT.cpu(), batch.tokens_BT.cpu()
        row_N, column_N = (batch.loss_mask_BT | (batch.imitation_BT != 0)).cpu().nonzero(as_tuple=True)
        if not len(row_N):
            return None
        width = segments_BT.shape[1]
        begins_BT = torch.ones_like(segments_BT, dtype=torch.bool)
        begins_BT[:, 1:] = segments_BT[:, 1:] != segments_BT[:, :-1]
        start_N = torch.where(begins_BT, torch.arange(width), 0).cummax(1).values[row_N, column_N]
        if bool((start_N == column_N).any()):
            raise InvalidArgument(
                "a batch trains the first token of a segment, which nothing precedes. Mask the prompt's tokens."
            )
        # A segment is named by (row, start); `nonzero` is in row-major order, so equal names are neighbours.
        names_S, segment_N, counts_S = torch.unique_consecutive(
            row_N * width + start_N, return_inverse=True, return_counts=True
        )
        rank_N = torch.arange(len(row_N)) - (counts_S.cumsum(0) - counts_S)[segment_N]
        at_SM = torch.zeros(len(names_S), int(counts_S.max()), dtype=torch.int64)
        at_SM[segment_N, rank_N] = column_N - start_N - 1
        # Only what precedes a segment's last trained token matters to any of them; the rest is padding.
        place_T = torch.arange(int(at_SM.max()) + 1)
        source_ST = ((names_S % width)[:, None] + place_T).clamp_max(width - 1)
        tokens_ST = tokens_BT[(names_S // width)[:, None], source_ST]
        tokens_ST = torch.where(place_T <= at_SM.amax(1, keepdim=True), tokens_ST, 0)
        first_U, distinct_S = _distinct(torch.cat((tokens_ST, at_SM), dim=1))
        return Picked(
            tokens_UT=tokens_ST[first_U].to(device),
            at_UM=at_SM[first_U].to(device),
            source_N=(distinct_S[segment_N] * at_SM.shape[1] + rank_N).to(device),
            row_N=row_N.to(device),
            column_N=column_N.to(device),
            targets_N=tokens_BT[row_N, column_N].to(device),
            temperature_N=_temperatures(batch, row_N, column_N, device),
        )


def _temperatures(
    batch: TrainBatch, row_N: torch.Tensor, column_N: torch.Tensor, device: torch.device
) -> torch.Tensor | None:
    if batch.temperature == 1:
        return None
    sampled_N = batch.loss_mask_BT.cpu()[row_N, column_N]
    return torch.where(sampled_N, batch.temperature, 1.0).to(device)


def _distinct(rows_SK: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the index of each distinct row's first occurrence, in order, and which of them every row equals."""
    number: dict[bytes, int] = {}
    first_U: list[int] = []
    distinct_S = []
    for s, row in enumerate(rows_SK.numpy()):
        u = number.setdefault(row.tobytes(), len(number))
        if u == len(first_U):
            first_U.append(s)
        distinct_S.append(u)
    return torch.tensor(first_U), torch.tensor(distinct_S)
