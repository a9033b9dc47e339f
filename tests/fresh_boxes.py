"""Boxes for grades, straight from a backend, for tests of graders without a server."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from rock_env.backends.base import Backend, that_takes_over
from rock_env.guest.steering import Steering
from rock_env.sandbox import Sandbox
from rock_env.spec import SandboxSpec

__all__ = ["BackendBoxes"]

_NUMBERS = itertools.count()


@dataclass
class BackendBoxes:
    """Satisfies `FreshBoxes` for the box `agent` (its id on the backend); counts the boxes it lent."""

    backend: Backend
    spec: SandboxSpec
    agent: str = ""
    lent: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def pristine(self) -> AsyncIterator[Sandbox]:
        async with self._box("") as box:
            yield box

    @asynccontextmanager
    async def fork(self) -> AsyncIterator[Sandbox]:
        async with self._frozen() as snapshot, self._box(snapshot) as box:
            yield box

    async def take_over(
        self,
        box: Sandbox,
        *,
        runs: Sequence[str] = (),
        asked: Sequence[str] = (),
        workdir: str = "",
        image: Mapping[str, Sequence[str]] | None = None,
    ) -> list[str]:
        steering = Steering.of(runs, asked, workdir, image or {})
        backend = that_takes_over(self.backend)
        async with self._frozen() as snapshot:
            return await backend.take_over(box.id, snapshot=snapshot, steering=steering)

    @asynccontextmanager
    async def _frozen(self) -> AsyncIterator[str]:
        snapshot = f"layer-{next(_NUMBERS)}"
        await self.backend.snapshot(self.agent, snapshot_id=snapshot)
        try:
            yield snapshot
        finally:
            await self.backend.delete_snapshot(snapshot)

    @asynccontextmanager
    async def _box(self, snapshot: str) -> AsyncIterator[Sandbox]:
        name = f"grade-{next(_NUMBERS)}"
        box = await self.backend.create(self.spec, sandbox_id=name, snapshot=snapshot)
        self.lent.append(name)
        try:
            yield box
        finally:
            await box.close()
