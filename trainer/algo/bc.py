"""BC, behaviour cloning: the likelihood of expert tokens and nothing else.

    L = - aggregate over the tokens of successful expert trajectories of  R log pi_theta(t)

The imitation term of the other algorithms alone, with every turn weighted the same. Used as warm-up and as the
baseline that says what the expert data is worth without any exploration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgoOptions, AlgorithmSpec, Credit, LossOutput
from trainer.algo.terms.loss import Aggregation, imitation_term
from trainer.algo.terms.returns import credit_group
from trainer.data.batch import TrainBatch

__all__ = ["BC", "BCOptions", "Bc"]


class BCOptions(AlgoOptions):
    """Options of behaviour cloning."""

    aggregation: Aggregation = "token_mean"
    """How token losses become one number."""


class Bc:
    """The algorithm `bc`."""

    needs_prox = False

    def __init__(self, options: BCOptions) -> None:
        self.options = options

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return the imitation weight R for every turn of successful experts; all else is dropped."""
        credits = credit_group(group, lambda learners: [np.zeros(len(t.turns)) for t in learners])
        return [
            credit if credit.dropped or trajectory.is_expert else replace(credit, dropped="imitation only")
            for trajectory, credit in zip(group, credits, strict=True)
        ]

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return the imitation term."""
        return LossOutput(*imitation_term(batch, logprobs_BT, self.options.aggregation))


BC = AlgorithmSpec(
    name="bc",
    summary="behaviour cloning of successful expert trajectories",
    options=BCOptions,
    build=Bc,
    learns_from_rollouts=False,
)
