"""Boxes for the escape suite: made on one backend, all destroyed at the end of the test."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from rock_env.backends.base import Backend
from rock_env.sandbox import Sandbox
from rock_env.spec import Resources, SandboxSpec

__all__ = ["Boxes"]


@dataclass
class Boxes:
    """Makes boxes of one backend."""

    backend: Backend
    image: str
    preload: tuple[str, ...] = ()
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    made: list[Sandbox] = field(default_factory=list)

    async def make(self, resources: Resources) -> Sandbox:
        """Return a fresh box."""
        spec = SandboxSpec(image=self.image, resources=resources, preload=self.preload)
        box = await self.backend.create(spec, sandbox_id=f"escape-{next(self.numbers)}")
        self.made.append(box)
        return box
