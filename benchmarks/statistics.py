"""Statistics of few runs: interquartile mean, stratified bootstrap, paired differences. Pure; called by benchmarks.

Values are one number per run (a success rate, 0 to 1). A stratum is what runs must not be exchanged across: an environment.
A value that is not finite is an error, never a 0: a failed run has no value and stays out.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

__all__ = ["Interval", "bootstrap", "iqm", "mean_interval", "paired_differences", "success_at"]

Floats = npt.NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)
TRIM = 4
"""One in this many values is cut off at either end: the interquartile range."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the ends of its bootstrap interval."""

    estimate: float
    low: float
    high: float

    def rounded(self) -> list[float]:
        """Return the three with four decimals, as a last line has them."""
        return [round(number, 4) for number in (self.estimate, self.low, self.high)]


def iqm(values: Sequence[float] | Floats) -> float:
    """Return the interquartile mean: floor(n/4) values are cut off at either end, the rest is averaged.

    With fewer than 4 values it is their mean. Source: Agarwal et al. 2021 (arXiv 2108.13264), as
    `scipy.stats.trim_mean(values, 0.25)` has it. Raise `ValueError` on no value or one that is not finite.
    """
    return float(_iqm(_checked(values)[np.newaxis])[0])


def bootstrap(
    strata: Sequence[Sequence[float]],
    *,
    resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return the IQM over all strata with the percentile interval of a stratified bootstrap.

    Each stratum is drawn anew with replacement and keeps its size (arXiv 2108.13264, section 4.1). With five runs such an
    interval is narrower than its confidence says. Raise `ValueError` on an empty stratum or a value that is not finite.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie between 0 and 1, got {confidence!r}")
    if not strata:
        raise ValueError("no stratum to draw from: pass at least one with at least one value")
    checked = [_checked(stratum) for stratum in strata]
    generator = np.random.default_rng(seed)
    drawn_RN = np.concatenate(
        [values[generator.integers(len(values), size=(resamples, len(values)))] for values in checked], axis=1
    )
    tail = (1 - confidence) / 2
    low, high = np.quantile(_iqm(drawn_RN), [tail, 1 - tail])
    return Interval(iqm(np.concatenate(checked)), float(low), float(high))


def mean_interval(
    values: Sequence[float], *, resamples: int = 10_000, confidence: float = 0.95, seed: int = 0
) -> Interval:
    """Return the mean with the percentile interval of a bootstrap over the values.

    With five of them such an interval is narrower than its confidence says. Raise `ValueError` as `iqm` does.
    """
    checked = _checked(values)
    generator = np.random.default_rng(seed)
    means = checked[generator.integers(len(checked), size=(resamples, len(checked)))].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(checked.mean()), float(low), float(high))


def paired_differences(first: Mapping[Key, float], second: Mapping[Key, float]) -> dict[Key, float]:
    """Return first minus second for the keys (such as seeds) that both have, in the order of `first`."""
    return {key: value - second[key] for key, value in first.items() if key in second}


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


def _iqm(values_RN: Floats) -> Floats:
    """Return the interquartile mean of each row."""
    count = values_RN.shape[1]
    cut = count // TRIM
    kept: Floats = np.sort(values_RN, axis=1)[:, cut : count - cut]
    means: Floats = kept.mean(axis=1)
    return means


def _checked(values: Sequence[float] | Floats) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"expected a list of at least one number, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"every value must be finite, got {array.tolist()}: leave failed runs out")
    return array
