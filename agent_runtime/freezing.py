"""Failed rollouts whose sandbox stays, for somebody to look into it.

An environment that was not passed, or was never graded, is left open in place of being closed: its server ends it with its
sandbox when nobody has used either for its idle time. So many are left open and no more.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agent_runtime.agents.cli_rollout import BoxedEnv, BoxedRock
from rock_env.client.sandbox.handle import AsyncSandbox
from rock_env.env import Info, StepResult, Verdict

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


class _Freezable:
    """One environment, which `close` leaves open if it was not passed."""

    def __init__(self, env: BoxedEnv, freezer: Freezer) -> None:
        self._env = env
        self._freezer = freezer
        self._passed = False

    @property
    def version(self) -> str:
        return self._env.version

    @property
    def sandbox_id(self) -> str:
        return self._env.sandbox_id

    @property
    def image(self) -> str:
        return self._env.image

    @property
    def brief(self) -> str:
        return self._env.brief

    @property
    def workdir(self) -> str:
        return self._env.workdir

    async def sandbox(self) -> AsyncSandbox:
        return await self._env.sandbox()

    async def reset(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]] = (),
        resume_seed: int | None = None,
        initial_hash: bytes = b"",
    ) -> tuple[str, Info, str]:
        self._passed = False
        return await self._env.reset(task_id, seed, prefix, resume_seed, initial_hash)

    async def step(self, action: str) -> StepResult:
        return await self._env.step(action)

    async def evaluate(self) -> Verdict:
        verdict = await self._env.evaluate()
        self._passed = verdict.passed
        return verdict

    async def close(self) -> None:
        if self._passed or not self._freezer.keeps(self._env.sandbox_id):
            await self._env.close()
        else:
            logger.info("sandbox kept: sandbox_id=%s", self._env.sandbox_id)
