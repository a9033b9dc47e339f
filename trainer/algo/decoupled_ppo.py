"""Decoupled PPO: clip against the policy the batch's updates began with, weigh by how far that one is from the sampler.

Sources: arXiv 2110.00641 (the decoupled objective); arXiv 2505.24298 (AReaL), Eq. 5. Without their critic: the advantage is
the group's, as in GRPO [ours]. `ppo` with `correction tis_token` has both.

    A_i = (R_i - mean R) / (std R + 1e-6)
    u_t = pi_theta(t) / pi_prox(t)          w_t = pi_prox(t) / mu(t), detached
    J   = aggregate over tokens of  w_t min(u_t A_i, clip(u_t, 1 - clip_low, 1 + clip_high) A_i)

pi_prox is the train engine as the batch's updates began; with one update per batch u is 1. `correction` says what becomes of
w: `tis_token` with the bound `inf` is the paper's; `correction_high 5` caps it as AReaL's code can. `dual_clip` is PPO's.
"""

from __future__ import annotations

from pydantic import NonNegativeFloat

from trainer.algo.base import AlgorithmSpec
from trainer.algo.grpo import Grpo, GRPOOptions
from trainer.algo.terms.corrections import CORRECTED, Correction

__all__ = ["DECOUPLED_PPO", "DecoupledPPOOptions", "DecoupledPpo"]


class DecoupledPPOOptions(GRPOOptions):
    """Options of decoupled PPO."""

    correction: Correction = "tis_token"
    """What is done about `pi_prox / mu` (`trainer/algo/terms/corrections.py`); `none` leaves it out."""
    correction_high: NonNegativeFloat = float("inf")
    """Upper bound of that ratio, whatever the correction; 0 takes its usual one, `inf` bounds nothing."""


class DecoupledPpo(Grpo):
    """The algorithm `decoupled_ppo`."""

    name = "decoupled_ppo"
    decoupled = True


DECOUPLED_PPO = AlgorithmSpec(
    name="decoupled_ppo",
    summary="PPO's clip against the trainer's own policy, weighted by its ratio to the sampler (arXiv 2505.24298)",
    options=DecoupledPPOOptions,
    build=DecoupledPpo,
    off_policy=CORRECTED,
)
