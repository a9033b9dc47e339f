"""From turns to tensors: what an algorithm says of turns (`Credit`), and what a loss sees of tokens (`TrainBatch`).

Shapes: B rows (one branch each), T tokens, K turns of one trajectory, C chunks of the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["Counts", "Credit", "TrainBatch"]


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """One trajectory's numbers per turn."""

    advantage_K: NDArray[np.float64]
    """RL weight of each turn's tokens; 0 length turns included. NaN is refused by the batch builder."""
    positive: bool
    """The raw outcome was a success."""
    imitation_K: NDArray[np.float64]
    """Imitation weight of each turn's tokens; non-zero only on expert trajectories."""
    dropped: str = ""
    """Why this trajectory does not train ("" if it does): a reason for the token ledger."""
    chunk_K: NDArray[np.int64] | None = None
    """Chunk of each turn, counted from 0 and never falling; None: one chunk per turn."""
    masked: Mapping[int, str] = field(default_factory=dict)
    """Why a turn weighs 0, for the token ledger: turn -> reason, where it is not that its credit came out as 0."""
    every_token: bool = False
    """Tokens without credit have a gradient nonetheless (a KL term), so their rows must not be left out."""
    value_K: NDArray[np.float64] | None = None
    """What the critic says of each turn's state, and 0 for a turn without a token; None without a critic."""
    return_K: NDArray[np.float64] | None = None
    """What the critic is to say of it: it learns from turns without credit too, so their rows are not left out."""
    oldest: int = -1
    """Tokens of older policy versions are not learned, and no ratio has them; below 0 none is too old. No expert's is."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How much trains in the whole batch, before any chunk is masked; divisors of the means over it."""

    trajectories: int = 0
    tokens: int = 0
    turns: int = 0
    """Those with a token."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainBatch:
    """What a train engine and a loss see. Index t of every `_BT` tensor is about token t of `tokens_BT`."""

    tokens_BT: torch.Tensor
    """int64; padding is 0 and lies to the right."""
    segment_ids_BT: torch.Tensor
    """int64; 0 is padding, tokens attend only within their own segment (>= 1)."""
    loss_mask_BT: torch.Tensor
    """bool; sampled tokens that the RL term trains."""
    rollout_logprobs_BT: torch.Tensor
    """float32; log mu of the inference engine, 0 where `loss_mask_BT` is False."""
    prox_logprobs_BT: torch.Tensor | None
    """float32; log pi_prox of the train engine as this batch's updates began; None: the current, detached, or with
    `fresh` the sampler's."""
    advantages_BT: torch.Tensor
    """float32; the algorithm's credit, broadcast to tokens."""
    positive_BT: torch.Tensor
    """bool; the trajectory's raw outcome was a success (the sign of its reward, never of an advantage)."""
    chunk_index_BT: torch.Tensor
    """int64; index in [0, chunks) of the chunk a trained token belongs to, -1 elsewhere."""
    chunks: int
    trajectory_index_B: torch.Tensor
    """int64; which trajectory of the batch a row belongs to."""
    imitation_BT: torch.Tensor
    """float32; weight of the imitation term on expert tokens, 0 elsewhere. Never overlaps `loss_mask_BT`."""
    policy_version_BT: torch.Tensor
    """int64; version that sampled the token, -1 elsewhere; known of tokens that are too old, too."""
    normalizer: float
    """Constant divisor of the RL term, known before any masking."""
    imitation_normalizer: float
    """Constant divisor of the imitation term."""
    counts: Counts = Counts()
    """Of the trajectories of the RL term. A part of a batch carries the whole batch's counts."""
    imitation_counts: Counts = Counts()
    """Of the expert trajectories."""
    trajectory_tokens_B: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """int64; trained (or imitated) tokens of the row's whole trajectory, for `seq_mean_token_mean`."""
    group_index_B: torch.Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    """int64; which group of rollouts (one task from one start) the row belongs to; an expert's row is its own."""
    reference_logprobs_BT: torch.Tensor | None = None
    """float32; log-probabilities of a frozen reference policy, for algorithms that set `needs_reference`."""
    old_logprobs_BT: torch.Tensor | None = None
    """float32; log pi_old: the train engine under the weights that sampled each token, for algorithms that keep `snapshots`.
    NaN where those weights are gone: such a token has no credit, and no ratio to be trained by."""
    opens_turn_BT: torch.Tensor | None = None
    """int64; on the first token of a turn of the RL term, the turn's index in its trajectory; -1 elsewhere. A token that is
    too old opens its turn too, outside `loss_mask_BT`. None: nobody asks."""
    returns_BT: torch.Tensor | None = None
    """float32; what a critic is to say of the state before a token that opens a turn, 0 elsewhere; None without a critic."""
    old_values_BT: torch.Tensor | None = None
    """float32; what the critic said there as this batch's updates began."""
    values_BT: torch.Tensor | None = None
    """float32; what it says now, differentiable: the train engine's `step` adds it. None: `old_values_BT`."""
    warmup_logprobs_BT: torch.Tensor | None = None
    """float32; log-probabilities of the policy that the warm-up ended with, where `explore.kl_coef` asks for them."""
    temperature: float = 1.0
    """What the logits of RL tokens are divided by: that of the sampler, so that all log-probabilities of them are of one
    tempered distribution. Imitated tokens are not tempered."""
    wants_entropy: bool = False
    """Whether `step` of the train engine is to add `entropy_BT`."""
    entropy_BT: torch.Tensor | None = None
    """float32, nats; entropy of pi_theta's distribution that the token is one of, differentiable."""
    fresh: bool = False
    """pi_prox itself sampled every token of the RL term, and for this batch's loss its ratio to the sampler is 1."""
