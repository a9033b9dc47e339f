"""IPA, Interactive Perceptive Agentic policy optimisation: the chunk is the unit of credit, ratio and masking.

Source: arXiv 2512.24873, section 3.2.4. What the paper says is marked [P]; what it leaves open and we chose, [ours].

Credit [P, Eq. 7]: `G_k = gamma^(K-k) R`, shared by all tokens of chunk k; a chunk is one turn [ours].

Gradient [P, Eq. 9], T+ and T- by the trajectory's raw outcome, `rho` and `m` detached:

    sum over T+ of  G_c m_c grad log pi  +  sum over T- of  clip(rho_c, 0, 1) G_c m_c grad log pi

    rho_c = (prod over c of pi_theta / pi_old)^(1/|c|)                    [P, Eq. 8]
    m_c   = 1[ (prod over c of pi_old / mu)^(1/|c|) <= H ]                [P]

An asynchronous trainer no longer has pi_old. What stands for it, and which ratio `m_c` compares, [ours] is the option
`behaviour`: see `trainer.algo.terms.behaviour`.

Normalisation [ours]: a constant known before masking, so that masking never re-inflates the survivors. With a baseline
[ours] a positive trajectory with negative advantage is clipped like a negative one: no unbounded push-down. The T- branch
has a weight of its own [ours], `neg_weight`, 0 by default: pushing failures down wrecked the small-scale runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from agent_runtime.types import Trajectory
from trainer.algo.base import AlgorithmSpec, Credit, LossOutput, Metric, OffPolicy
from trainer.algo.ipa_options import IPAOptions
from trainer.algo.terms.behaviour import behaviour_ratios
from trainer.algo.terms.chunks import chunks_of
from trainer.algo.terms.loss import aggregate, imitation_term, keep
from trainer.algo.terms.returns import (
    Floats,
    baselines,
    chunk_of_turn,
    chunk_returns,
    credit_group,
    faulty_turns,
    state_advantages,
)
from trainer.data.batch import TrainBatch

__all__ = ["IPA", "IPAOptions", "Ipa"]


class Ipa:
    """The algorithm `ipa`."""

    needs_prox = True

    def __init__(self, options: IPAOptions) -> None:
        self.options = options
        self.snapshots = 0 if options.behaviour == "stored" else options.snapshots_kept

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return the chunk returns of a group; experts get imitation weights `gamma^(K-k) R`."""
        options = self.options
        credits = credit_group(
            group, self._advantages, imitation_gamma=options.gamma, chunk_turns=options.chunk_turns
        )
        if options.learn_faulty:
            return credits
        return [
            replace(credit, masked=faulty_turns(trajectory)) if credit.positive else credit
            for trajectory, credit in zip(group, credits, strict=True)
        ]

    def _advantages(self, learners: Sequence[Trajectory]) -> list[Floats]:
        options = self.options
        chunks = [chunk_of_turn(len(t.turns), options.chunk_turns, t.internal_turns) for t in learners]
        finals_G = np.array([t.reward if t.reward > 0 else options.reward_fail for t in learners])
        rewards = [self._chunk_rewards(t, chunk_K) for t, chunk_K in zip(learners, chunks, strict=True)]
        if options.baseline != "state_mean":
            # The baseline is of whole outcomes, taken off the end: at gamma = 1 this is G_1 minus the group's mean G_1.
            finals_G -= baselines(finals_G + np.array([r.sum() for r in rewards]), options.baseline)
        returns = [
            chunk_returns(final, len(rewards_C), options.gamma, rewards_C)
            for final, rewards_C in zip(finals_G, rewards, strict=True)
        ]
        if options.baseline == "state_mean":
            returns = state_advantages(
                learners,
                returns,
                gamma=options.gamma,
                trace=options.state_trace,
                size=options.chunk_turns,
            )
        return [
            self._weights(t) * return_C[chunk_K]
            for t, return_C, chunk_K in zip(learners, returns, chunks, strict=True)
        ]

    def _weights(self, trajectory: Trajectory) -> Floats:
        """Return what each turn's return is multiplied by."""
        turns = len(trajectory.turns)
        if trajectory.reward <= 0:
            return np.full(turns, self.options.neg_weight)
        weights = np.ones(turns)
        if not self.options.learn_faulty:
            weights[list(faulty_turns(trajectory))] = 0.0
        return weights

    def _chunk_rewards(self, trajectory: Trajectory, chunk_K: NDArray[np.int64]) -> Floats:
        if not self.options.turn_rewards:
            return np.zeros(chunk_K.max(initial=-1) + 1)
        return np.bincount(chunk_K, np.asarray(trajectory.turn_rewards, np.float64)).astype(np.float64)

    def spares_prox(self, batch: TrainBatch, agreement: float) -> bool:
        """Return whether the mask keeps every chunk, and no token with credit has a ratio in its weight."""
        options = self.options
        keeps_all = options.mask_low <= math.exp(-agreement) and math.exp(agreement) <= options.mask_high
        weighed_BT = batch.loss_mask_BT & self._clipped(batch) & (batch.advantages_BT != 0)
        return options.behaviour == "stored" and keeps_all and not bool(weighed_BT.any())

    @staticmethod
    def _clipped(batch: TrainBatch) -> torch.Tensor:
        """Return the tokens (bool, BT) whose weight is the ratio, clipped to [0, 1]."""
        return ~batch.positive_BT | (batch.advantages_BT < 0)

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return `lambda_rl` times the surrogate of Eq. 9 plus `lambda_il` times the imitation term (Eq. 10)."""
        options = self.options
        mask_BT = batch.loss_mask_BT
        current_BT = keep(logprobs_BT, mask_BT)
        chunks = chunks_of(batch)
        compared_C, rho_C = behaviour_ratios(options.behaviour, batch, logprobs_BT, chunks)
        kept_C = (compared_C >= options.mask_low) & (compared_C <= options.mask_high)
        kept_BT = mask_BT & chunks.spread(kept_C)
        advantages_BT = keep(batch.advantages_BT, mask_BT)
        weight_BT = torch.where(self._clipped(batch), chunks.spread(rho_C.clamp(0, 1)), 1)
        weight_BT = keep(weight_BT, kept_BT)
        rl = aggregate(-weight_BT * advantages_BT * current_BT, batch, "constant")
        il, metrics = imitation_term(batch, logprobs_BT, "constant")
        metrics |= self._shares(batch, weight_BT * advantages_BT)
        loss = options.lambda_rl * rl + options.lambda_il * il
        masked = {"chunk mask": mask_BT & ~kept_BT} if options.lambda_rl else {"lambda_rl 0": mask_BT}
        return LossOutput(loss, metrics, masked)

    def _shares(self, batch: TrainBatch, weights_BT: torch.Tensor) -> dict[str, Metric]:
        """Return how much of the loss's weight is imitation, and how much of RL's is failures.

        The weight is the sum over tokens of what their log-probability is multiplied by, without its sign. Of what a token
        moves it says little once the policy is sure of it, so it bounds no gradient; it tells which term is the larger.
        """
        options = self.options
        rl_BT = options.lambda_rl * weights_BT.detach().abs()
        rl = float(aggregate(rl_BT, batch, "constant"))
        failures = float(aggregate(keep(rl_BT, ~batch.positive_BT), batch, "constant"))
        il = options.lambda_il * float(aggregate(batch.imitation_BT.abs(), batch, "constant", imitation=True))
        return {
            "ipa/imitation_share": Metric(il, il + rl),
            "ipa/failures_share": Metric(failures, rl),
        }


IPA = AlgorithmSpec(
    name="ipa",
    summary="chunk-level returns, ratios and masks, with expert injection (arXiv 2512.24873)",
    options=IPAOptions,
    build=Ipa,
    off_policy=OffPolicy(
        lambda options: math.inf if options.behaviour == "stored" else options.snapshots_kept - 1,
        "snapshots_kept",
    ),
)
