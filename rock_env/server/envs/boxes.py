"""The sandboxes of environments: asked of the sandbox core like anyone's, so that they are recorded, counted and swept.

Used by `server/envs/sandboxed`, `server/envs/grade_boxes` and `server/envs/branches`. They end with the server also
where sandboxes are durable: the episode they belong to does. What a cancelled call was making is undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar

from rock_env.errors import EnvLost, NotFound
from rock_env.guest.steering import Steering
from rock_env.sandbox import Sandbox
from rock_env.server.capacity.admission import Grant
from rock_env.server.own_tasks import logged
from rock_env.server.sandboxes.checkpoints import CheckpointTree, TreeWish
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish, new_sandbox_id
from rock_env.spec import SandboxSpec

__all__ = ["EnvBoxes"]

T = TypeVar("T")


class EnvBoxes:
    """Makes, lends and freezes sandboxes for environments, each in the name of the present tenant."""

    def __init__(self, core: SandboxCore) -> None:
        self._core = core
        self._tree = CheckpointTree(core)

    async def create(
        self,
        spec: SandboxSpec,
        *,
        environment: str,
        env_id: str,
        snapshot_id: str = "",
        place: Grant | None = None,
    ) -> str:
        """Make a box and return its sandbox id: a fresh one, or one from a snapshot, whose spec it then has.

        `place` is one that it has already, and needs not wait for.
        """
        backend = ""
        if snapshot_id:
            snapshot = await self._tree.ready(snapshot_id)
            spec, backend = snapshot.spec, snapshot.backend
        wish = SandboxWish(
            spec,
            environment=environment,
            labels={"env_id": env_id},
            ephemeral=True,
            snapshot_id=snapshot_id,
            backend=backend,
            place=place,
            sandbox_id=new_sandbox_id(),
        )
        await self._whole(self._core.create(wish), lambda: self.delete(wish.sandbox_id))
        return wish.sandbox_id

    @asynccontextmanager
    async def using(self, sandbox_id: str) -> AsyncIterator[Sandbox]:
        """Lend the box to one call. Raise `EnvLost` if it ended, such as by its lifetime or by its user's Delete."""
        async with AsyncExitStack() as lent:
            try:
                box = await lent.enter_async_context(self._core.using(sandbox_id))
            except NotFound as error:
                raise EnvLost(f"the environment's sandbox is gone: {error.message}.") from error
            yield box

    def idle_s(self, sandbox_id: str) -> float:
        """Return for how long no call has used the box; infinity for one that is gone."""
        return self._core.idle_s(sandbox_id)

    async def spec_of(self, sandbox_id: str) -> SandboxSpec:
        """Return what the box was made of, its image as its content: a name may mean another one by now."""
        return (await self._core.get(sandbox_id)).spec

    async def delete(self, sandbox_id: str) -> None:
        """Destroy the box, if it is still there."""
        with suppress(NotFound):
            await self._core.delete(sandbox_id)

    async def freeze(self, sandbox_id: str) -> str:
        """Snapshot the box and return the snapshot's id. Raise `Unimplemented` where the backend cannot."""
        made: list[str] = []

        async def snapshot() -> str:
            made.append((await self._tree.snapshot(sandbox_id, TreeWish(ephemeral=True))).id)
            return made[0]

        async def undo() -> None:
            for snapshot_id in made:
                await self.drop(snapshot_id)

        return await self._whole(snapshot(), undo)

    async def take_over(self, sandbox_id: str, snapshot_id: str, steering: Steering) -> list[str]:
        """Give a clean box a snapshot's files but those that steer a grade; see `TakesOver.take_over`."""
        return await self._core.tasks.run(self._tree.take_over(sandbox_id, snapshot_id, steering))

    async def drop(self, snapshot_id: str) -> None:
        """Give a snapshot up; boxes made from it keep what they need of it."""
        with suppress(NotFound):
            await self._tree.delete(snapshot_id)

    async def _whole(self, act: Coroutine[Any, Any, T], undo: Callable[[], Awaitable[None]]) -> T:
        """Run `act` to its end. If the caller is cancelled meanwhile, nobody will ever use what it makes: undo it."""
        making = self._core.tasks.spawn(act)
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            self._core.tasks.spawn(_undone(making, undo))
            raise


async def _undone(making: asyncio.Task[Any], undo: Callable[[], Awaitable[None]]) -> None:
    async def made_or_not() -> None:
        await making

    async def undoing() -> None:
        await undo()

    await logged(undoing())  # ends also its wait for a place
    await logged(made_or_not())
    await logged(undoing())
