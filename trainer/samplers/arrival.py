"""What stops a run whose sampler has other weights than its learner: digests after a sync, log-probabilities after a batch.

Changes no number of a run. Digests are of what a sampler holds, not of what it computes with: a copy that a kernel packed
for itself, such as that of a tied head, shows in the log-probabilities only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from trainer.errors import Halted
from trainer.samplers.proof import Digests, arrival_fault

__all__ = ["FULL_MOST", "HALF_MEAN", "Arrived", "StatesWeights", "check_agreement", "check_arrival"]

FULL_MOST = 1e-3
"""Most that learner and sampler may differ by in the log-probability of any token in float32 (nats)."""
HALF_MEAN = 0.05
"""Most that they may differ by on average where either computes in bfloat16."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """What a sampler has."""

    version: int
    digests: Digests


@runtime_checkable
class StatesWeights(Protocol):
    """A sampler that says what it has, from the memory that it samples from."""

    def arrived(self) -> Arrived:
        """Return the version and digests of the weights it samples with, tied ones by each of their names."""
        ...


def check_arrival(sent: Digests, found: Sequence[Arrived | None], version: int) -> None:
    """Raise `Halted` where a sampler has another version or another tensor than the learner sent; None states nothing."""
    for number, arrived in enumerate(found, start=1):
        if arrived is None:
            continue
        who = f"sampler {number} of {len(found)}"
        if arrived.version != version:
            raise Halted(
                f"the learner published version {version}, but {who} says it has version {arrived.version}. {_REMEDY}"
            )
        name = arrival_fault(sent, arrived.digests)
        if name is not None:
            raise Halted(
                f"the weights of version {version} did not arrive: {who} has another tensor {name!r} than the learner: got "
                f"{arrived.digests.get(name, 'none')}, expected {sent.get(name, 'one that the learner sent')}. {_REMEDY}"
            )


def check_agreement(gap_N: NDArray[np.float64], *, half: bool, bound: float | None) -> None:
    """Raise `Halted` where learner and sampler differ by more than `bound` over tokens of equal weights.

    `gap_N` is the learner's log-probability less the sampler's. In float32 no token may be apart by more, with `half`
    the mean of all; None takes `FULL_MOST` or `HALF_MEAN`, 0 looks at nothing.
    """
    if bound == 0 or not len(gap_N):
        return
    apart_N = np.abs(gap_N)
    if bound is None:
        bound = HALF_MEAN if half else FULL_MOST
    got, what = (float(apart_N.mean()), "on average") if half else (float(apart_N.max()), "for one token")
    if not got <= bound:  # what is no number does not agree either
        raise Halted(
            f"the sampler does not compute what the learner does with the same weights: the log-probabilities of "
            f"{len(apart_N)} tokens of the first batch differ, got {got:.3g} nats {what}, expected at most {bound:g}. What "
            "was saved before is intact. Look for a sampler that keeps a copy of a weight (a packed or quantised head) or "
            "has another dtype; set guard.mismatch to what such a sampler may differ by, or to 0 to go on all the same."
        )


_REMEDY = (
    "Nothing was sampled with it, and what was saved before is intact. Continue with --resume; if it happens again, look at "
    "how the sampler's load takes weights."
)
