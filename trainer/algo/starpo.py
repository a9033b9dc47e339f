"""StarPO: the whole interaction is one sample, with the return of all its turns; only groups that disagree teach.

Source: arXiv 2504.20073 (RAGEN), StarPO in its GRPO form and the filter of StarPO-S.

    R_i = outcome + sum over turns of r_k (if asked)
    A_i = (R_i - mean R) / (std R + 1e-6)
    J   = aggregate over tokens of  min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i)
    over the `keep_share` of the step's groups whose R deviate most

With its defaults this is `grpo`, to the last bit: `turn_rewards` and `keep_share` are what it adds. StarPO-S is
`keep_share 0.25`, `clip_high 0.28` and no KL term. A dropped group counts in no divisor but `constant`'s and the token
ledger says so; groups without any deviation never teach. Its critic is left out [ours].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from pydantic import Field

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgorithmSpec, Credit, LossOutput
from trainer.algo.terms.objective import RATIO_TO_SAMPLER, ClipOptions, clip_loss
from trainer.algo.terms.returns import Floats, advantages_of, credit_group, outcomes, spread_over_turns
from trainer.data.batch import TrainBatch

__all__ = ["STARPO", "StarPO", "StarPOOptions"]


class StarPOOptions(ClipOptions):
    """Options of StarPO."""

    normalize_std: bool = True
    """Divide advantages by the group's standard deviation."""
    turn_rewards: bool = False
    """Add the environment's per-turn rewards to the return. Leave off where the outcome already contains them."""
    keep_share: float = Field(1.0, gt=0, le=1)
    """Share of the step's groups that train: those whose returns deviate most, at least one."""


class StarPO:
    """The algorithm `starpo`."""

    def __init__(self, options: StarPOOptions) -> None:
        self.options = options
        self.needs_prox, self.needs_reference = options.ratio_needs_prox, options.needs_reference

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return the normalised return of each trajectory, the same for all its turns."""
        return credit_group(
            group,
            self._advantages,
            chunk_turns=self.options.credit_chunk_turns,
            every_token=self.options.trains_every_token,
        )

    def _advantages(self, learners: Sequence[Trajectory]) -> list[Floats]:
        scores_G = self._scores(learners)
        scores_G = advantages_of(scores_G, "group_mean", normalize_std=self.options.normalize_std)
        return spread_over_turns(learners, scores_G)

    def _scores(self, learners: Sequence[Trajectory]) -> Floats:
        return outcomes(learners, turn_rewards=self.options.turn_rewards)

    def across_groups(self, trajectories: Sequence[Trajectory], credits: Sequence[Credit]) -> list[Credit]:
        """Drop the trajectories of the groups whose returns deviate least."""
        groups: dict[str, list[Trajectory]] = {}
        for trajectory, credit in zip(trajectories, credits, strict=True):
            if not credit.dropped and not trajectory.is_expert:
                groups.setdefault(trajectory.group_id, []).append(trajectory)
        deviations = {name: float(self._scores(members).std()) for name, members in groups.items()}
        kept = max(round(self.options.keep_share * len(groups)), 1)
        leaving = set(sorted(deviations, key=lambda name: -deviations[name])[kept:])
        return [
            replace(credit, dropped="low-variance group")
            if not credit.dropped and not trajectory.is_expert and trajectory.group_id in leaving
            else credit
            for trajectory, credit in zip(trajectories, credits, strict=True)
        ]

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return minus J plus the weighted imitation term."""
        return clip_loss(self.options, batch, logprobs_BT, "starpo")


STARPO = AlgorithmSpec(
    name="starpo",
    summary="GRPO, with turn rewards or a filter of groups by their variance if asked for (arXiv 2504.20073)",
    options=StarPOOptions,
    build=StarPO,
    off_policy=RATIO_TO_SAMPLER,
)
