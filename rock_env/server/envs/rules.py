"""The rules of one environment with a sandbox, wherever its plugin's code runs: here, or in a worker.

Here they run where the one who started the server is its only caller. `rules_pool` has them in workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rock_env.env import (
    Attaching,
    Attachment,
    FreshBoxes,
    FreshGraded,
    Info,
    KeepsRunning,
    RestorableSandboxEnv,
    SandboxEnv,
    StepResult,
    Verdict,
)
from rock_env.env_workers.catalog import Catalog
from rock_env.errors import plugin_call
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, EnvSpec, TaskSpec

__all__ = ["OwnRules", "Rules"]


class Rules(Protocol):
    """What `SandboxedEnv` asks of a `SandboxEnv` and its tasks. Each method raises what the plugin's does."""

    canonical: str
    """The environment's arguments as canonical JSON."""
    fresh_graded: bool
    """It is a `FreshGraded`."""
    restorable: bool
    """It is a `RestorableSandboxEnv`."""
    attaching: bool
    """It is an `Attaching`."""

    async def task(self, task_id: str) -> TaskSpec:
        """Return a task. Raise `InvalidArgument`, or `UnknownName` for an unknown split."""
        ...

    async def reset(self, box: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]: ...

    async def step(self, box: Sandbox, action: str) -> StepResult: ...

    async def evaluate(self, box: Sandbox) -> Verdict: ...

    async def grade(self, box: Sandbox, fresh: FreshBoxes) -> Verdict: ...

    async def keeps_running(self) -> bool:
        """Return whether the present task is graded with what the agent left running."""
        ...

    async def attachments(self) -> Sequence[Attachment]: ...

    async def snapshot(self) -> bytes: ...

    async def restore(self, state: bytes) -> None: ...

    async def close(self) -> None:
        """Forget the environment."""
        ...


class OwnRules:
    """Rules that run in the server's process."""

    def __init__(self, spec: EnvSpec, params: EnvParams, catalog: Catalog) -> None:
        self._name, self._params, self._catalog = spec.name, params, catalog
        with plugin_call(f"making environment {spec.name}"):
            self.plugin: SandboxEnv = spec.factory(params)  # type: ignore[assignment]  # a SandboxEnv, by EnvSpec
        self.canonical = params.canonical()
        self.fresh_graded = isinstance(self.plugin, FreshGraded)
        self.restorable = isinstance(self.plugin, RestorableSandboxEnv)
        self.attaching = isinstance(self.plugin, Attaching)

    async def task(self, task_id: str) -> TaskSpec:
        return self._catalog.task(self._name, self._params, task_id)

    async def reset(self, box: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        return await self.plugin.reset(box, task, seed)

    async def step(self, box: Sandbox, action: str) -> StepResult:
        return await self.plugin.step(box, action)

    async def evaluate(self, box: Sandbox) -> Verdict:
        return await self.plugin.evaluate(box)

    async def grade(self, box: Sandbox, fresh: FreshBoxes) -> Verdict:
        assert isinstance(self.plugin, FreshGraded)  # asked only where it is
        return await self.plugin.grade(box, fresh)

    async def keeps_running(self) -> bool:
        return isinstance(self.plugin, KeepsRunning) and self.plugin.keeps_running()

    async def attachments(self) -> Sequence[Attachment]:
        assert isinstance(self.plugin, Attaching)  # asked only where it is
        return self.plugin.attachments()

    async def snapshot(self) -> bytes:
        assert isinstance(self.plugin, RestorableSandboxEnv)  # asked only where it is
        return self.plugin.snapshot()

    async def restore(self, state: bytes) -> None:
        assert isinstance(self.plugin, RestorableSandboxEnv)  # asked only where it is
        self.plugin.restore(state)

    async def close(self) -> None:
        """Nothing is kept elsewhere."""
