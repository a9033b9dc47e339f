"""Sample next tokens: temperature, top-p and a counter-based random number per (request seed, position).

A sample depends on the row's own distribution, seed and position only, never on its neighbours. The log-probabilities
returned are those of the distribution really sampled from. Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from agent_runtime.policy import PolicyError, SampleRequest
from trainer.samplers.drawing import nucleus

__all__ = ["Distribution", "next_tokens", "uniforms"]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # odd fraction of the golden ratio: SplitMix64's increment
_MASK64 = (1 << 64) - 1
_LOWEST = -1e4
"""Stands for the log-probability of what cannot be drawn: times its probability, 0, it adds nothing to an entropy."""


def _mix(state_B: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return SplitMix64's output function of each state (Steele, Lea, Flood 2014)."""
    z = state_B
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def uniforms(seeds_B: NDArray[np.uint64], position: int) -> NDArray[np.float64]:
    """Return one number in [0, 1 - 2**-52] per row, a pure function of (seed, position)."""
    step = np.asarray([position + 1], np.uint64) * _GAMMA
    bits = _mix(_mix(seeds_B + _GAMMA) + step)
    return (bits >> np.uint64(12)).astype(np.float64) * 2.0**-52


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """The sampling parameters of a batch, as columns."""

    seeds_B: NDArray[np.uint64]
    temperature_B: NDArray[np.float32]
    top_p_B: NDArray[np.float32]

    @staticmethod
    def of(requests: Sequence[SampleRequest]) -> Distribution:
        """Collect the parameters of `requests`; seeds of any size count modulo 2**64."""
        return Distribution(
            seeds_B=np.array([request.seed & _MASK64 for request in requests], np.uint64),
            temperature_B=np.array([request.params.temperature for request in requests], np.float32),
            top_p_B=np.array([request.params.top_p for request in requests], np.float32),
        )

    def keep(self, rows: NDArray[np.int64]) -> Distribution:
        """Return the parameters of the rows `rows`."""
        return Distribution(self.seeds_B[rows], self.temperature_B[rows], self.top_p_B[rows])


def next_tokens(
    logits_BV: torch.Tensor, how: Distribution, position: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sample the token at completion index `position` of every row; return ids (int64), log-probs (float32) and entropies.

    The entropies (float64, nats) are those of the distributions that were drawn from, whatever was drawn; of a row with
    temperature 0 that of the distribution before. Raise `PolicyError` when the logits are not finite.
    """
    device = logits_BV.device
    greedy_B = torch.from_numpy(how.temperature_B == 0.0).to(device)
    temperature_B = torch.from_numpy(np.where(how.temperature_B == 0.0, np.float32(1.0), how.temperature_B))
    logprobs_BV = torch.log_softmax(logits_BV.float() / temperature_B.to(device)[:, None], dim=-1)
    best_B = logprobs_BV.argmax(dim=-1)
    best_logprobs_B = logprobs_BV.gather(1, best_B[:, None])[:, 0]
    if (how.top_p_B < 1.0).any():
        logprobs_BV = nucleus(logprobs_BV, torch.from_numpy(how.top_p_B).to(device))
    # Inverse of the cumulative distribution: the first token whose cumulative mass exceeds u times the total. The
    # total, not 1, so that rounding cannot run off the end; a token of probability 0 adds no mass and is never first.
    probs_BV = logprobs_BV.double().exp()
    mass_BV = probs_BV.cumsum(dim=-1)
    if not torch.isfinite(mass_BV[:, -1]).all():
        raise PolicyError(
            "the policy's logits are not finite. Its weights are broken; resume from a checkpoint."
        )
    u_B = torch.from_numpy(uniforms(how.seeds_B, position)).to(device)
    drawn_B = torch.searchsorted(mass_BV, (u_B * mass_BV[:, -1])[:, None], right=True)[:, 0]
    drawn_logprobs_B = logprobs_BV.gather(1, drawn_B[:, None])[:, 0]
    tokens_B = torch.where(greedy_B, best_B, drawn_B)
    entropy_B = -(probs_BV * logprobs_BV.clamp_min(_LOWEST)).sum(dim=-1)
    return tokens_B, torch.where(greedy_B, best_logprobs_B, drawn_logprobs_B), entropy_B
