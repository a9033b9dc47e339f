"""Dr. GRPO, "GRPO done right": GRPO without its two biases, division by the group's deviation and by the output's length.

Source: arXiv 2503.20783, section 3.2.

    A_i = R_i - mean R
    J   = 1/(trajectories * token budget) sum over tokens of  min(r_t A_i, clip(r_t, 1 - clip_low, 1 + clip_high) A_i)

The same code as `grpo`, with `normalize_std` off and `aggregation` constant; every other option is GRPO's.
"""

from __future__ import annotations

from trainer.algo.base import AlgorithmSpec
from trainer.algo.grpo import Grpo, GRPOOptions
from trainer.algo.terms.loss import Aggregation
from trainer.algo.terms.objective import RATIO_TO_SAMPLER

__all__ = ["DR_GRPO", "DrGRPOOptions", "DrGrpo"]


class DrGRPOOptions(GRPOOptions):
    """Options of Dr. GRPO."""

    normalize_std: bool = False
    """Divide advantages by the group's standard deviation."""
    aggregation: Aggregation = "constant"
    """How token losses become one number, for the imitation term too."""


class DrGrpo(Grpo):
    """The algorithm `dr_grpo`."""

    name = "dr_grpo"


DR_GRPO = AlgorithmSpec(
    name="dr_grpo",
    summary="GRPO without division by deviation and length (arXiv 2503.20783)",
    options=DrGRPOOptions,
    build=DrGrpo,
    off_policy=RATIO_TO_SAMPLER,
)
