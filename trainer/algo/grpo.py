"""GRPO, Group Relative Policy Optimization: outcome advantages within a group, PPO's clip per token.

Sources: arXiv 2402.03300, Eq. 3 and section 4.1.2 (outcome supervision); its KL term (Eq. 4) is `kl_weight 0.04`,
`kl_reference frozen`, off by default. arXiv 1912.09729 for the dual clip. Dr. GRPO and DAPO are `dr_grpo` and `dapo`.

    A_i = (R_i - mean R) / (std R + 1e-6)                std: of the sample (n - 1)
    r_t = pi_theta(t) / mu(t)
    J   = aggregate over tokens of  min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i)
          and, where A_i < 0, no less than  dual_clip A_i

The paper's pi_old is the policy that sampled, so r uses the log-probabilities stored at sampling, whatever their version:
the clip then also bounds staleness. With a `correction`, r is taken against pi_prox and the correction covers `pi_prox / mu`
(that is `decoupled_ppo`). All tokens a trajectory sampled, over all turns, are its "output". Advantages come from the
group, not from a critic (that is `ppo`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgorithmSpec, Credit, LossOutput
from trainer.algo.terms.objective import RATIO_TO_SAMPLER, ClipOptions, clip_loss
from trainer.algo.terms.returns import credit_group, outcome_advantages
from trainer.data.batch import TrainBatch

__all__ = ["GRPO", "GRPOOptions", "Grpo"]


class GRPOOptions(ClipOptions):
    """Options of GRPO; the paper gives no clip range, so it is PPO's. Its KL term is left out."""

    normalize_std: bool = True
    """Divide advantages by the group's standard deviation."""


class Grpo:
    """The algorithm `grpo`."""

    name = "grpo"
    decoupled = False
    """Measure the ratio against pi_prox even without a correction."""

    def __init__(self, options: GRPOOptions) -> None:
        self.options = options
        self.needs_prox = self.decoupled or options.ratio_needs_prox
        self.needs_reference = options.needs_reference

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return the normalised outcome of each trajectory, the same for all its turns."""
        options = self.options
        return credit_group(
            group,
            lambda learners: outcome_advantages(learners, "group_mean", normalize_std=options.normalize_std),
            chunk_turns=options.credit_chunk_turns,
            every_token=options.trains_every_token,
        )

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return minus J plus the weighted imitation term."""
        return clip_loss(self.options, batch, logprobs_BT, self.name, decoupled=self.decoupled)


GRPO = AlgorithmSpec(
    name="grpo",
    summary="group-normalised outcomes and PPO's token clip (arXiv 2402.03300)",
    options=GRPOOptions,
    build=Grpo,
    off_policy=RATIO_TO_SAMPLER,
)
