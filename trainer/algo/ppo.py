"""PPO: a critic's advantages per turn, PPO's clip per token, dual clip.

Sources: arXiv 1707.06347, Eqs. 7 and 9 (clip, joint loss); arXiv 1506.02438, Eqs. 11 and 16 (advantages); arXiv 1912.09729
(dual clip); arXiv 2005.12729, section 3 (clipped value loss, normalised advantages).

    delta_k = r_k + gamma V(s_(k+1)) - V(s_k)               r_K includes the outcome R
    A_k     = delta_k + gamma trace A_(k+1)                 G_k = A_k + V(s_k), what the critic learns
    A'      = (A - mean A) / (std A + 1e-6)                 over every token that the step's trajectories sampled
    J       = aggregate over tokens of  min(r_t A', clip(r_t, 1 - clip_low, 1 + clip_high) A'),  r_t = pi_theta / mu
    L       = -J + mean over turns of 1/2 max( (V - G)^2, (V_old + clip(V - V_old, -value_clip, value_clip) - G)^2 )

A turn is the action, s_k everything before its first token, V as the batch's updates began [ours, docs/adr/0021-critic.md].
A cut episode that earned nothing has V(s_(K+1)) for its outcome: it may have gone on to succeed. The critic reads the policy
network's last state and does not move it, so L needs no weight between its terms. No entropy bonus, as in other trainings of
language models: `clip_high` and the KL term keep the policy from collapsing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from pydantic import Field, NonNegativeInt, PositiveFloat

from agent_runtime.types import StopReason, Trajectory
from trainer.algo.base import AlgorithmSpec, Credit, LossOutput
from trainer.algo.terms.critic import critic_loss, gae
from trainer.algo.terms.loss import Aggregation, imitation_term
from trainer.algo.terms.objective import RATIO_TO_SAMPLER, ClipOptions, clip_loss
from trainer.algo.terms.returns import Floats, credit_group, whitened
from trainer.data.batch import TrainBatch

__all__ = ["PPO", "PPOOptions", "Ppo"]

_CUT = (StopReason.TRUNCATED, StopReason.MAX_TURNS)


class PPOOptions(ClipOptions):
    """Options of PPO."""

    gamma: float = Field(0.95, gt=0, le=1)
    """Discount per turn."""
    trace: float = Field(0.95, ge=0, le=1)
    """GAE's lambda: 1 is the whole return less the turn's value, 0 trusts the next turn's value."""
    turn_rewards: bool = False
    """Add the environment's per-turn rewards to the return. Leave off where the outcome already contains them."""
    bootstrap: bool = True
    """An episode that the environment or `agent.max_turns` cut off without reward ends in the value of where it stood;
    False takes the cut for a failure, as where the limit is part of the task."""
    whiten: bool = True
    """Normalise advantages over the step's sampled tokens."""
    value_clip: PositiveFloat = 0.2
    """How far a value may move in one batch before its error stops falling; `inf` bounds nothing."""
    value_lr: PositiveFloat = 1e-3
    """Learning rate of the critic, constant: it begins from nothing, whatever the policy's rate."""
    value_warmup: NonNegativeInt = 0
    """First steps in which only the critic learns from rollouts; imitation goes on."""
    dual_clip: float = Field(3.0, gt=1)
    """Ratios above it lose no more from a negative advantage; `inf` leaves it out."""
    aggregation: Aggregation = "token_mean"
    """How token losses become one number, for the imitation term too."""


class Ppo:
    """The algorithm `ppo`."""

    def __init__(self, options: PPOOptions) -> None:
        self.options = options
        self.needs_prox, self.needs_reference = options.ratio_needs_prox, options.needs_reference
        self.value_lr, self.value_warmup = options.value_lr, options.value_warmup

    def credit(self, group: Sequence[Trajectory]) -> list[Credit]:
        """Return A of a critic that says 0; `criticised` makes it A'."""
        return credit_group(
            group,
            lambda learners: [self._advantages(t, np.zeros(len(t.turns) + 1))[0] for t in learners],
            chunk_turns=self.options.credit_chunk_turns,
            every_token=self.options.trains_every_token,
        )

    def criticised(
        self, trajectories: Sequence[Trajectory], credits: Sequence[Credit], values: Sequence[Floats]
    ) -> list[Credit]:
        """Return the step's credit under the critic's values, one array of K + 1 per trajectory."""
        judged = [
            credit if credit.dropped or trajectory.is_expert else self._judged(trajectory, credit, values_L)
            for trajectory, credit, values_L in zip(trajectories, credits, values, strict=True)
        ]
        return whitened(trajectories, judged) if self.options.whiten else judged

    def bootstraps(self, trajectory: Trajectory) -> bool:
        """Return whether the trajectory's outcome is the value of the state it was cut off in: nobody gave it another."""
        return self.options.bootstrap and trajectory.stop_reason in _CUT and trajectory.reward == 0

    def _judged(self, trajectory: Trajectory, credit: Credit, values_L: Floats) -> Credit:
        advantage_K, value_K = self._advantages(trajectory, values_L)
        return replace(credit, advantage_K=advantage_K, value_K=value_K, return_K=advantage_K + value_K)

    def _advantages(self, trajectory: Trajectory, values_L: Floats) -> tuple[Floats, Floats]:
        """Return A and V per turn, both 0 where no token was sampled."""
        options, rewards_K = self.options, np.zeros(len(trajectory.turns))
        if options.turn_rewards:
            rewards_K += trajectory.turn_rewards
        decides_K = np.array([len(turn.completion_ids) > 0 for turn in trajectory.turns], bool)
        last = values_L[-1] if self.bootstraps(trajectory) else np.nan
        if np.isnan(last) and len(rewards_K):  # ended, or what came next would not have fitted the context
            rewards_K[-1] += trajectory.reward
            last = 0.0
        known_L = np.append(np.where(decides_K, values_L[:-1], np.nan), last)
        advantage_K = gae(rewards_K, known_L, gamma=options.gamma, trace=options.trace)
        return advantage_K, np.where(decides_K, values_L[:-1], 0.0)

    def loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return L plus the weighted imitation term."""
        policy = clip_loss(self.options, batch, logprobs_BT, "ppo")
        value, metrics = critic_loss(batch, self.options.value_clip)
        return replace(policy, loss=policy.loss + value, metrics=policy.metrics | metrics)

    def warmup_loss(self, batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
        """Return the critic's part of L plus the weighted imitation term."""
        imitation, metrics = imitation_term(batch, logprobs_BT, self.options.aggregation)
        value, more = critic_loss(batch, self.options.value_clip)
        # Without anything to imitate the policy has no gradient at all: zeros would be an update by old momentum.
        imitates = bool((batch.imitation_BT != 0).any())
        loss = value + self.options.lambda_il * imitation if imitates else value
        return LossOutput(loss, metrics | more, {"critic warm-up": batch.loss_mask_BT})


PPO = AlgorithmSpec(
    name="ppo",
    summary="a critic's advantages per turn and PPO's token clip (arXiv 1707.06347)",
    options=PPOOptions,
    build=Ppo,
    off_policy=RATIO_TO_SAMPLER,
)
