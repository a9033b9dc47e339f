"""DAPO: GRPO with a higher upper clip, the mean over all tokens, and without groups that cannot teach.

Source: arXiv 2503.14476, Eq. 8.

    A_i = (R_i - mean R) / (std R + 1e-6)
    J   = 1/(sum of n_i) sum over tokens of  min(r_t A_i, clip(r_t, 1 - 0.2, 1 + 0.28) A_i)
    over the groups in which not all R are equal

Departures: others are drawn in place of groups of equal rewards up to a cap only (the paper's dynamic sampling, in
`trainer.rollout.filling`); a group that remains is dropped here, from all divisors but that of `constant`, and the
token ledger says so. The overlong shaping is a reward, not part of the loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import NonNegativeFloat

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgorithmSpec, Credit
from trainer.algo.grpo import Grpo, GRPOOptions
from trainer.algo.terms.loss import Aggregation
from trainer.algo.terms.objective import RATIO_TO_SAMPLER
from trainer.data.ledger import FLAT_GROUP

__all__ = ["DAPO", "DAPOOptions", "Dapo"]


class DAPOOptions(GRPOOptions):
    """Options of DAPO; defaults as in the paper."""

    clip_high: NonNegativeFloat = 0.28
    """Ratios above 1 + clip_high earn no more from a positive advantage."""
    aggregation: Aggregation = "token_mean"
    """How token losses become one number, for the imitation term too."""
    drop_flat: bool = True
    """Drop groups in which all rewards are equal, from all divisors but that of `constant`."""


class Dapo(Grpo):
    """The algorithm `dapo`."""

    name = "dapo"
    options: DAPOOptions

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return GRPO's credit; a group without variance is dropped."""
        credits = super().credit(group)
        rewards = {t.reward for t, c in zip(group, credits, strict=True) if not c.dropped and not t.is_expert}
        if len(rewards) != 1 or not self.options.drop_flat:
            return credits
        return [
            credit if credit.dropped or trajectory.is_expert else replace(credit, dropped=FLAT_GROUP)
            for trajectory, credit in zip(group, credits, strict=True)
        ]


DAPO = AlgorithmSpec(
    name="dapo",
    summary="clip-higher, token mean, no flat groups (arXiv 2503.14476)",
    options=DAPOOptions,
    build=Dapo,
    dynamic_sampling=True,
    off_policy=RATIO_TO_SAMPLER,
)
