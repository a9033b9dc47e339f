"""What of an expert to imitate beside RL in one step. A value shared by the loop (torch-free) and the learner."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Injection"]


@dataclass(frozen=True, slots=True)
class Injection:
    """Imitate the turns `turns` of expert `trajectory_id`, scaled by `weight`."""

    trajectory_id: str
    turns: tuple[int, ...]
    weight: float
