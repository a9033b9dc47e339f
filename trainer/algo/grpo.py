"""GRPO, Group Relative Policy Optimization: outcome advantages within a group, PPO's clip per token.

Sources: arXiv 2402.03300, Eqs. 3 and section 4.1.2 (outcome supervision), without the KL term; arXiv 2503.14476 (DAPO) for
the two-sided clip; arXiv 2503.20783 for Dr. GRPO.

    A_i = (R_i - mean R) / (std R + 1e-6)                std: of the sample (n - 1)
    r_t = pi_theta(t) / mu(t)
    J   = aggregate over tokens of  min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i)

The paper's pi_old is the policy that sampled, so r uses the log-probabilities stored at sampling, whatever their version:
the clip then also bounds staleness. `normalize_std = false` with `aggregation = "constant"` is Dr. GRPO exactly;
`clip_high = 0.28` with `token_mean` is DAPO's loss. All tokens a trajectory sampled, over all turns, are its "output".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgoOptions, AlgorithmSpec, Credit, LossOutput
from trainer.algo.loss import Aggregation, aggregate, imitation_term, keep, mean_metric
from trainer.algo.returns import Floats, baselines, credit_group
from trainer.data.batch import TrainBatch

__all__ = ["GRPO", "GRPOOptions", "Grpo"]

_STD_EPSILON = 1e-6
_LOG_RATIO_BOUND = 20.0
"""exp(20) is 5e8: finite in float32, and far outside any clip."""


class GRPOOptions(AlgoOptions):
    """Options of GRPO; defaults as in the paper, the KL term left out."""

    clip_low: float = Field(0.2, ge=0, le=1)
    """Ratios below 1 - clip_low earn no more from a negative advantage."""
    clip_high: NonNegativeFloat = 0.2
    """Ratios above 1 + clip_high earn no more from a positive advantage; 0.28 is DAPO's clip-higher."""
    normalize_std: bool = True
    """Divide advantages by the group's standard deviation."""
    aggregation: Aggregation = "seq_mean_token_mean"
    """How token losses become one number, for the imitation term too."""
    lambda_il: NonNegativeFloat = 0.1
    """Weight of the imitation term."""


class Grpo:
    """The algorithm `grpo`."""

    needs_prox = False

    def __init__(self, options: GRPOOptions) -> None:
        self.options = options

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return the normalised outcome of each trajectory, the same for all its turns."""
        return credit_group(group, self._advantages)

    def _advantages(self, learners: Sequence[Trajectory]) -> list[Floats]:
        rewards_G = np.array([t.reward for t in learners])
        advantages_G = rewards_G - baselines(rewards_G, "group_mean")
        if self.options.normalize_std and len(learners) > 1:
            advantages_G /= rewards_G.std(ddof=1) + _STD_EPSILON
        return [np.full(len(t.turns), a) for t, a in zip(learners, advantages_G, strict=True)]

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return minus J plus the weighted imitation term."""
        options = self.options
        mask_BT = batch.loss_mask_BT
        log_ratio_BT = keep(logprobs_BT, mask_BT) - keep(batch.rollout_logprobs_BT, mask_BT)
        ratio_BT = log_ratio_BT.clamp(-_LOG_RATIO_BOUND, _LOG_RATIO_BOUND).exp()
        advantages_BT = keep(batch.advantages_BT, mask_BT)
        free_BT = ratio_BT * advantages_BT
        clipped_BT = ratio_BT.clamp(1 - options.clip_low, 1 + options.clip_high) * advantages_BT
        rl = aggregate(-torch.minimum(free_BT, clipped_BT), batch, options.aggregation)
        il, metrics = imitation_term(batch, logprobs_BT, options.aggregation)
        metrics["grpo/ratio"] = mean_metric(ratio_BT, mask_BT)
        metrics["grpo/clipped_tokens"] = mean_metric((clipped_BT < free_BT).to(ratio_BT.dtype), mask_BT)
        metrics["grpo/mu_minus_pi"] = mean_metric(-log_ratio_BT, mask_BT)
        return LossOutput(rl + options.lambda_il * il, metrics)


GRPO = AlgorithmSpec(
    name="grpo",
    summary="group-normalised outcomes and PPO's token clip (arXiv 2402.03300)",
    options=GRPOOptions,
    build=Grpo,
)
