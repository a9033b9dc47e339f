"""Step-REINFORCE: every turn is an action of its own, credited with the return from there on.

Source: the `step_reinforce` estimator of ROLL's agentic pipeline (arXiv 2506.06122); Williams 1992 for the gradient.

    G_k = r_k + gamma G_(k+1),  G_K = r_K + R_i
    A_k = G_k - b                      b: 0, or the mean of G over all turns of the group, one turn counting once
    grad J = aggregate over tokens of  c_t A_k grad log pi_theta(t)

r_k are the environment's rewards of the turns, if asked; with them off this is the discounted outcome. Uncorrected for
staleness unless a `correction` is set (c). `reinforce` takes its baseline off the outcome instead, before discounting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgorithmSpec, Credit, LossOutput
from trainer.algo.terms.corrections import CORRECTED
from trainer.algo.terms.loss import Aggregation
from trainer.algo.terms.objective import CorrectedOptions, policy_loss, policy_terms
from trainer.algo.terms.returns import STD_EPSILON, Floats, credit_group, mean_of, turn_returns
from trainer.data.batch import TrainBatch

__all__ = ["STEP_REINFORCE", "StepReinforce", "StepReinforceOptions"]


class StepReinforceOptions(CorrectedOptions):
    """Options of step-REINFORCE."""

    gamma: float = Field(0.95, gt=0, le=1)
    """Discount per turn, counted back from the end."""
    baseline: Literal["none", "group_mean"] = "group_mean"
    """What is subtracted from every turn's return: nothing, or the mean over all turns of the group."""
    normalize_std: bool = False
    """Divide by the deviation over all turns of the group."""
    turn_rewards: bool = False
    """Add the environment's per-turn rewards to the return. Leave off where the outcome already contains them."""
    aggregation: Aggregation = "seq_mean_token_mean"
    """How token losses become one number, for the imitation term too."""


class StepReinforce:
    """The algorithm `step_reinforce`."""

    def __init__(self, options: StepReinforceOptions) -> None:
        self.options = options
        self.needs_prox, self.needs_reference = options.needs_prox, options.needs_reference

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return A per turn."""
        options = self.options
        return credit_group(
            group,
            self._advantages,
            imitation_gamma=options.gamma,
            chunk_turns=options.credit_chunk_turns,
            every_token=options.trains_every_token,
        )

    def _advantages(self, learners: Sequence[Trajectory]) -> list[Floats]:
        options = self.options
        returns = turn_returns(learners, options.gamma, turn_rewards=options.turn_rewards)
        every_N = np.concatenate([*returns, np.zeros(0)])
        mean = mean_of(every_N) if len(every_N) and options.baseline == "group_mean" else 0.0
        std = every_N.std(ddof=1) + STD_EPSILON if len(every_N) > 1 and options.normalize_std else 1.0
        return [(return_K - mean) / std for return_K in returns]

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return minus the surrogate whose gradient is above, plus the weighted imitation term."""
        options = self.options
        terms = policy_terms(options, batch, logprobs_BT, score_function=True)
        surrogate_BT = terms.advantages_BT * terms.current_BT
        return policy_loss(options, batch, logprobs_BT, terms, surrogate_BT, options.aggregation)


STEP_REINFORCE = AlgorithmSpec(
    name="step_reinforce",
    summary="returns per turn over the mean turn of the group (ROLL, arXiv 2506.06122)",
    options=StepReinforceOptions,
    build=StepReinforce,
    off_policy=CORRECTED,
)
