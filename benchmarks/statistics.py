"""Statistics of few runs: the mean with a bootstrap interval, and success along a curve. Pure; called by benchmarks.

Values are one number per run (a success rate, 0 to 1).
A value that is not finite is an error, never a 0: a failed run has no value and stays out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["Interval", "mean_interval", "success_at"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the ends of its bootstrap interval."""

    estimate: float
    low: float
    high: float

    def rounded(self) -> list[float]:
        """Return the three with four decimals, as a last line has them."""
        return [round(number, 4) for number in (self.estimate, self.low, self.high)]


def mean_interval(
    values: Sequence[float], *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Return the mean with the percentile interval of a bootstrap over the values.

    With five of them such an interval is narrower than its confidence says. Raise `ValueError` on no value, or one that is
    not finite.
    """
    checked = _checked(values)
    generator = np.random.default_rng(seed)
    means = checked[generator.integers(len(checked), size=(resamples, len(checked)))].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(checked.mean()), float(low), float(high))


def success_at(curve: Sequence[tuple[float, float]], env_steps: float) -> float | None:
    """Return the success at `env_steps` on a curve of (environment steps, success), by linear interpolation.

    None where the curve ends before: what a run never did is not guessed. Raise `ValueError` on an empty curve, one whose
    steps fall, or a success that is not finite. Of several values at one step the last counts.
    """
    if not curve:
        raise ValueError("the curve is empty: a run has at least the evaluation after its warm-up")
    steps, _ = zip(*curve, strict=True)
    _checked([value for _, value in curve])
    if any(later < earlier for earlier, later in pairwise(steps)):
        raise ValueError(f"environment steps must not fall along a curve, got {list(steps)}")
    if not steps[0] <= env_steps <= steps[-1]:
        return None
    last = dict(curve)
    return float(np.interp(env_steps, list(last), list(last.values())))


def _checked(values: Sequence[float] | Floats) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"expected a list of at least one number, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"every value must be finite, got {array.tolist()}: leave failed runs out")
    return array
