"""What of an expert to imitate beside RL in one step. A value shared by the loop (torch-free) and the learner."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Injection"]


@dataclass(frozen=True, slots=True)
class Injection:
    """Imitate expert `trajectory_id` up to and including turn `until`, scaled by `weight` (annealing)."""

    trajectory_id: str
    until: int
    weight: float
