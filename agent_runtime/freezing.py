"""Failed rollouts whose sandbox stays, for somebody to look into it.

An environment that was not passed, or was never graded, is left open in place of being closed: its server ends it with its
sandbox when nobody has used either for its idle time. So many are left open and no more.
"""

from __future__ import annotations

import logging

from agent_runtime.agents.cli_rollout import BoxedEnv, BoxedRock
from agent_runtime.wrapped import WrappedBoxedEnv
from rock_env.env import Verdict

__all__ = ["Freezer"]

logger = logging.getLogger(__name__)


class Freezer:
    """Makes environments of which the first `most` that fail stay open; their sandboxes' ids are added to `kept`."""

    def __init__(self, rock: BoxedRock, most: int, kept: list[str] | None = None) -> None:
        self._rock = rock
        self._most = most
        self.kept = [] if kept is None else kept

    async def make(self, env: str, params_json: str) -> BoxedEnv:
        """Make an environment. Raise `RockError`."""
        made = await self._rock.make(env, params_json)
        return _Freezable(made, self)

    def keeps(self, sandbox_id: str) -> bool:
        """Take a place for a sandbox that is to stay, if one is left."""
        if not sandbox_id or len(self.kept) >= self._most:
            return False
        self.kept.append(sandbox_id)
        return True


class _Freezable(WrappedBoxedEnv[BoxedEnv]):
    """One environment, which `close` leaves open if it was not passed."""

    def __init__(self, env: BoxedEnv, freezer: Freezer) -> None:
        super().__init__(env)
        self._freezer = freezer
        self._passed = False

    async def evaluate(self) -> Verdict:
        verdict = await super().evaluate()
        self._passed = verdict.passed
        return verdict

    async def close(self) -> None:
        if self._passed or not self._freezer.keeps(self.sandbox_id):
            await super().close()
        else:
            logger.info("sandbox kept: sandbox_id=%s", self.sandbox_id)
