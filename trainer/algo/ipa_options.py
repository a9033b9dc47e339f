"""The options of IPA, whose loss and credit are in `trainer.algo.ipa`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from trainer.algo.base import AlgoOptions
from trainer.algo.terms.behaviour import Behaviour
from trainer.algo.terms.returns import Baseline

__all__ = ["IPAOptions"]


class IPAOptions(AlgoOptions):
    """Options of IPA. The paper publishes no values: all defaults are ours."""

    gamma: float = Field(0.95, gt=0, le=1)
    """Discount per chunk, counted back from the end of the trajectory."""
    behaviour: Behaviour = "stored"
    """What the ratio rho_c is taken against, and what the mask compares: `stored` takes mu and masks on pi_prox / mu;
    `snapshots` takes pi_old and masks on pi_prox / pi_old; `paper` takes pi_old and masks on pi_old / mu (Eqs. 8 and 9).
    pi_old is computed again with the weights of the version that sampled the turn."""
    snapshots_kept: PositiveInt = 5
    """Newest policy versions whose weights the learner keeps for pi_old (host memory and checkpoints: so many models). A
    chunk of an older version is left out."""
    mask_high: PositiveFloat = 5.0
    """H: chunks whose ratio of the mask exceeds it are dropped; `inf` drops none."""
    mask_low: NonNegativeFloat = 0.0
    """Chunks whose ratio of the mask falls below it are dropped; 0 is the paper's rule."""
    neg_weight: NonNegativeFloat = 0.0
    """Weight of the T- branch; 0 leaves it out, so that failures only lower the baseline."""
    reward_fail: float = Field(0.0, le=0)
    """R of a trajectory whose raw outcome is not positive."""
    baseline: Baseline | Literal["state_mean"] = "none"
    """What is subtracted, over the group's trajectories that did not fail: from R, or (`state_mean`) from each G_k the
    value of the observation the chunk begins at, estimated from the group's visits to it."""
    state_trace: float = Field(1.0, ge=0, le=1)
    """With `state_mean`: 1 compares the whole return G_k with the state's mean; lower values replace the far part of the
    return by the values of the states reached (less variance; wrong where the observation hides the state)."""
    turn_rewards: bool = False
    """Add the environment's per-turn rewards to the return. Leave off where the outcome already contains them."""
    chunk_turns: NonNegativeInt = 1
    """Turns that make one chunk; 0 makes the whole trajectory one chunk."""
    learn_faulty: bool = True
    """Learn turns of successes that had a fault (a tool call that failed, an edit taken back later); False leaves them
    out, as imitation does."""
    lambda_rl: NonNegativeFloat = 1.0
    """Weight of the chunk loss (Eq. 10)."""
    lambda_il: NonNegativeFloat = 0.1
    """Weight of the imitation loss (Eq. 10)."""

    @model_validator(mode="after")
    def _no_dead_option(self) -> Self:
        if self.reward_fail and not self.neg_weight and self.baseline == "none":
            raise ValueError(
                "reward_fail has no effect without neg_weight or a baseline: set neg_weight, or leave it 0"
            )
        if self.neg_weight and not self.reward_fail and self.baseline == "none" and not self.turn_rewards:
            raise ValueError(
                f"neg_weight={self.neg_weight:g} has no effect where a failure's return is 0: set reward_fail, a baseline "
                "or turn_rewards"
            )
        if self.mask_low > self.mask_high:
            raise ValueError(
                f"mask_low must not exceed mask_high, got {self.mask_low:g} and {self.mask_high:g}, which drops every "
                "chunk: swap them"
            )
        if self.state_trace != 1 and self.baseline != "state_mean":
            raise ValueError(
                f"state_trace has no effect with baseline={self.baseline!r}: use baseline='state_mean'"
            )
        if (
            self.snapshots_kept != type(self).model_fields["snapshots_kept"].default
            and self.behaviour == "stored"
        ):
            raise ValueError(
                f"snapshots_kept={self.snapshots_kept} has no effect with behaviour='stored', which needs no weights: "
                "set behaviour='snapshots' or 'paper'"
            )
        return self
