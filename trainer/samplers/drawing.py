"""Draw next tokens where the logits are, without asking the host: the same samples as `trainer.samplers.sampling`.

A sample depends on the row's own distribution, seed and index only. Integers wrap modulo 2**64, as unsigned ones do; only
the shifts need care, because torch's int64 is signed. Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

import torch

__all__ = ["draw", "nucleus", "uniforms_on_device"]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


_GAMMA = _signed(0x9E3779B97F4A7C15)  # odd fraction of the golden ratio: SplitMix64's increment
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def _right(z: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift unsigned integers to the right."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _mix(z: torch.Tensor) -> torch.Tensor:
    """Return SplitMix64's output function of each state (Steele, Lea, Flood 2014)."""
    z = (z ^ _right(z, 30)) * _FIRST
    z = (z ^ _right(z, 27)) * _SECOND
    return z ^ _right(z, 31)


def uniforms_on_device(seeds_R: torch.Tensor, index_R: torch.Tensor) -> torch.Tensor:
    """Return one float64 in [0, 1 - 2**-52] per row, a pure function of (seed, index); both are int64."""
    bits = _mix(_mix(seeds_R + _GAMMA) + (index_R + 1) * _GAMMA)
    return _right(bits, 12).double() * 2.0**-52


def draw(
    logits_RV: torch.Tensor,
    seeds_R: torch.Tensor,
    index_R: torch.Tensor,
    temperature_R: torch.Tensor,
    top_p_R: torch.Tensor,
    *,
    cut: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sample one token per row: its id (int64) and its log-probability (float32) under what it was drawn from.

    `cut`: some row has a top_p below 1. A row whose logits are not finite gets the log-probability NaN and some id.
    """
    greedy_R = temperature_R == 0.0
    scale_R = torch.where(greedy_R, torch.ones_like(temperature_R), temperature_R)
    logprobs_RV = torch.log_softmax(logits_RV.float() / scale_R[:, None], dim=-1)
    best_R = logprobs_RV.argmax(dim=-1)
    best_logprobs_R = logprobs_RV.gather(1, best_R[:, None])[:, 0]
    if cut:
        logprobs_RV = nucleus(logprobs_RV, top_p_R)
    # Inverse of the cumulative distribution, as `next_tokens` does it.
    mass_RV = logprobs_RV.double().exp().cumsum(dim=-1)
    total_R = mass_RV[:, -1]
    point_R = uniforms_on_device(seeds_R, index_R) * total_R
    drawn_R = torch.searchsorted(mass_RV, point_R[:, None], right=True)[:, 0]
    drawn_R = drawn_R.clamp_max(logits_RV.shape[1] - 1)  # only where nothing is finite
    tokens_R = torch.where(greedy_R, best_R, drawn_R)
    logprobs_R = torch.where(greedy_R, best_logprobs_R, logprobs_RV.gather(1, drawn_R[:, None])[:, 0])
    return tokens_R, torch.where(torch.isfinite(total_R), logprobs_R, torch.full_like(logprobs_R, torch.nan))


def nucleus(logprobs_RV: torch.Tensor, top_p_R: torch.Tensor) -> torch.Tensor:
    """Keep the most likely tokens until their mass reaches top_p (at least one), renormalised; the rest is -inf."""
    ordered_RV, order_RV = logprobs_RV.sort(dim=-1, descending=True, stable=True)
    probs_RV = ordered_RV.exp()
    before_RV = probs_RV.cumsum(dim=-1) - probs_RV
    cut_RV = (before_RV >= top_p_R[:, None]) & (top_p_R < 1.0)[:, None]
    cut_RV[:, 0] = False
    cut_RV = torch.zeros_like(cut_RV).scatter(1, order_RV, cut_RV)
    kept_RV = logprobs_RV.masked_fill(cut_RV, -torch.inf)
    return torch.where((top_p_R < 1.0)[:, None], torch.log_softmax(kept_RV, dim=-1), logprobs_RV)
