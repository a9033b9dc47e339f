"""What of an expert to imitate beside RL in one step. A value shared by the loop (torch-free) and the learner."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Injection"]


@dataclass(frozen=True, slots=True)
class Injection:
    """Imitate what expert `trajectory_id` did at its environment steps `turns`, scaled by `weight`.

    What it said to itself before such a step, such as a summary, goes with it.
    """

    trajectory_id: str
    turns: tuple[int, ...]
    weight: float
