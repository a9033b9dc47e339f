"""The boxes of a grade: made for it alone beside the agent's box, and gone when it is done or given up.

Made by `server/envs/sandboxed` for one Evaluate of a `FreshGraded` environment, which uses it as its `FreshBoxes`. A
box takes the place on the node that the agent's box holds, in which nothing runs meanwhile: a node full of agents
that wait for their grades would else wait for itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rock_env.errors import FailedPrecondition, InvalidArgument
from rock_env.guest.steering import Steering
from rock_env.sandbox import Sandbox
from rock_env.server.capacity.admission import Grant
from rock_env.server.envs.boxes import EnvBoxes
from rock_env.server.own_tasks import logged

__all__ = ["GradeBoxes"]


@dataclass(slots=True)
class GradeBoxes:
    """Satisfies `FreshBoxes`. One box at a time: there is one place."""

    boxes: EnvBoxes
    environment: str
    env_id: str
    agent_box_id: str
    _taken: bool = False
    _clean: tuple[str, Sandbox] | None = None
    """The pristine box that is lent, and its id, until it has the agent's files."""

    @asynccontextmanager
    async def pristine(self) -> AsyncIterator[Sandbox]:
        """Lend a new box with the spec and the very image of the agent's."""
        async with self._place() as place, self._box("", place) as box:
            yield box

    @asynccontextmanager
    async def fork(self) -> AsyncIterator[Sandbox]:
        """Lend a box that begins with a copy of the agent's files. Raise `Unimplemented` where there are no layers."""
        async with (
            self._place() as place,
            self._frozen() as snapshot_id,
            self._box(snapshot_id, place) as box,
        ):
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
        """Give a pristine box the agent's files but those that could steer the grade; return what was left out."""
        if self._clean is None or box is not self._clean[1]:
            raise InvalidArgument("only a pristine box of this grade takes the agent's files over, and once")
        sandbox_id, self._clean = self._clean[0], None
        steering = Steering.of(runs, asked, workdir, image or {})
        async with self._frozen() as snapshot_id:
            return await self.boxes.take_over(sandbox_id, snapshot_id, steering)

    @asynccontextmanager
    async def _frozen(self) -> AsyncIterator[str]:
        """Lend a snapshot of the agent's box."""
        snapshot_id = await self.boxes.freeze(self.agent_box_id)
        try:
            yield snapshot_id
        finally:
            await logged(self.boxes.drop(snapshot_id))

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[Grant]:
        if self._taken:
            raise FailedPrecondition("a grade has one box at a time; leave the one before first")
        self._taken = True
        try:
            yield Grant("", (), lambda *_: None)
        finally:
            self._taken = False

    @asynccontextmanager
    async def _box(self, snapshot_id: str, place: Grant) -> AsyncIterator[Sandbox]:
        sandbox_id = await self.boxes.create(
            await self.boxes.spec_of(self.agent_box_id),
            environment=self.environment,
            env_id=self.env_id,
            snapshot_id=snapshot_id,
            place=place,
        )
        try:
            async with self.boxes.using(sandbox_id) as box:
                self._clean = None if snapshot_id else (sandbox_id, box)
                yield box
        finally:
            self._clean = None
            await logged(self.boxes.delete(sandbox_id))
