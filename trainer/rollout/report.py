"""What a step's rollouts say by themselves. Called by the loop; reads records only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from agent_runtime.types import Trajectory

__all__ = ["summary_metrics"]


def summary_metrics(trajectories: Sequence[Trajectory]) -> Mapping[str, float]:
    """Return what a step's rollouts say by themselves: success, length, failures."""
    done = [t for t in trajectories if t.failure is None]
    if not done:
        return {"failed": float(len(trajectories))}
    return {
        "success": float(np.mean([t.passed for t in done])),
        "reward": float(np.mean([t.reward for t in done])),
        "turns": float(np.mean([len(t.turns) for t in done])),
        "illegal_share": sum(t.illegal_actions for t in done) / max(1, sum(len(t.turns) for t in done)),
        "failed": float(len(trajectories) - len(done)),
    }
