"""The Ray actor that asks the reward workers.

It runs beside the rollout workers and the engines, with its own share of the machine; trajectories cross processes encoded.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from agent_runtime.store import decode, encode
from rock_env.plugins import NO_OWN, Own, give
from trainer.config import TrainConfig
from trainer.processes.telling import tell
from trainer.reward.kept import KeptAnswers
from trainer.reward.router import Rewarded, Router

__all__ = ["RewardActor"]


class RewardActor:
    """One actor: all routes of a run."""

    def __init__(self, config: TrainConfig, rock_address: str) -> None:
        self._config, self._rock_address = config, rock_address
        self._kept: KeptAnswers | None = None

    async def ready(self, own: Own = NO_OWN, told_as: str = "") -> None:
        """Open the workers. First of all calls; see `trainer.processes.learner`."""
        give(own)
        tell(told_as)
        self._router = await Router(self._config, self._rock_address).__aenter__()

    async def process_id(self) -> int:
        """Return the actor's process, for the accounts."""
        return os.getpid()

    async def reward(self, encoded: Sequence[bytes], run_folder: Path) -> Rewarded:
        """Reward a step's trajectories; answers are kept in `run_folder`."""
        if self._kept is None:  # open as long as the actor lives
            self._kept = KeptAnswers(run_folder).__enter__()
        results, metrics = await self._router.reward([decode(data) for data in encoded], self._kept)
        return Rewarded([encode(trajectory) for trajectory in results], metrics)
