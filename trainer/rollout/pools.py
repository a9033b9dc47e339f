"""The anchor pools of a run: one for each of its environments, whose tasks and experts nobody else's rollouts concern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_runtime.types import Trajectory
from trainer.config import TrainConfig
from trainer.environments import name_of
from trainer.errors import CheckpointError
from trainer.rollout.anchors import Anchor, AnchorPool

__all__ = ["Pools"]


class Pools:
    """Anchor pools by environment."""

    def __init__(self, config: TrainConfig) -> None:
        self._pools = {
            each.env: AnchorPool(config.anchors, max_turns=config.agent.max_turns) for each in config.shares
        }

    def __len__(self) -> int:
        return sum(map(len, self._pools.values()))

    @property
    def too_long(self) -> int:
        """Return how many experts take more turns than a rollout has."""
        return sum(pool.is_too_long(expert) for pool in self._pools.values() for expert in pool.experts)

    def of(self, env: str) -> AnchorPool:
        """Return the pool of one environment."""
        return self._pools[env]

    def observe(self, step: int, anchors: Mapping[str, Anchor], seen: Sequence[Trajectory]) -> None:
        """Let each pool take in the rollouts of its environment."""
        for env, pool in self._pools.items():
            own = seen if len(self._pools) == 1 else [t for t in seen if name_of(t) == env]
            pool.observe(step, anchors, own)

    def metrics(self) -> dict[str, float]:
        """Return what is known, under the names of docs/metrics.md; of several environments apart."""
        if len(self._pools) == 1:
            return next(iter(self._pools.values())).metrics()
        return {
            f"env/{env}/{name}": value
            for env, pool in self._pools.items()
            for name, value in pool.metrics().items()
        }

    def state(self) -> dict[str, Any]:
        """Return plain data for a checkpoint."""
        if len(self._pools) == 1:
            return next(iter(self._pools.values())).state()
        return {env: pool.state() for env, pool in self._pools.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`. Raise `CheckpointError` for what is none."""
        if len(self._pools) == 1:
            next(iter(self._pools.values())).restore(state)
            return
        if state and state.keys() != self._pools.keys():
            raise CheckpointError(
                f"this checkpoint holds the anchors of {', '.join(state)}, expected those of {', '.join(self._pools)}: "
                "resume with the environments that the run began with."
            )
        for env, own in state.items():
            self._pools[env].restore(own)
