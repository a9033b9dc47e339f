"""An environment in another one's coat: all calls go through; subclasses change what they want to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from agent_runtime.agents.cli_rollout import BoxedEnv
from agent_runtime.recording import Attaches
from agent_runtime.run import RockEnv
from rock_env.client.sandbox.handle import AsyncSandbox
from rock_env.env import Artifact, Info, StepResult, Verdict
from rock_env.errors import NotFound

__all__ = ["WrappedBoxedEnv", "WrappedEnv"]

_Env = TypeVar("_Env", bound=RockEnv)
_Boxed = TypeVar("_Boxed", bound=BoxedEnv)


class WrappedEnv(Generic[_Env]):
    """A `run.RockEnv` that passes everything on to the one inside."""

    def __init__(self, env: _Env) -> None:
        self.inside = env

    @property
    def version(self) -> str:
        return self.inside.version

    @property
    def sandbox_id(self) -> str:
        return self.inside.sandbox_id

    @property
    def image(self) -> str:
        return self.inside.image

    @property
    def artifacts(self) -> tuple[Artifact, ...]:
        return self.inside.artifacts if isinstance(self.inside, Attaches) else ()

    async def read_artifact(self, sha256: str) -> bytes:
        if not isinstance(self.inside, Attaches):
            raise NotFound("this environment attaches nothing.")
        return await self.inside.read_artifact(sha256)

    async def reset(
        self,
        task_id: str,
        seed: int,
        prefix: Sequence[tuple[str, bytes]] = (),
        resume_seed: int | None = None,
        initial_hash: bytes = b"",
    ) -> tuple[str, Info, str]:
        return await self.inside.reset(task_id, seed, prefix, resume_seed, initial_hash)

    async def step(self, action: str) -> StepResult:
        return await self.inside.step(action)

    async def evaluate(self) -> Verdict:
        return await self.inside.evaluate()

    async def close(self) -> None:
        await self.inside.close()


class WrappedBoxedEnv(WrappedEnv[_Boxed]):
    """The same for an environment that acts in a sandbox."""

    @property
    def brief(self) -> str:
        return self.inside.brief

    @property
    def workdir(self) -> str:
        return self.inside.workdir

    async def sandbox(self) -> AsyncSandbox:
        return await self.inside.sandbox()
