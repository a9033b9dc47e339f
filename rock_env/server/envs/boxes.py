"""The sandboxes of environments: asked of the sandbox core like anyone's, so that they are recorded, counted and swept.

Used by `server/envs/sandboxed`, `server/envs/grade_boxes` and `server/envs/branches`. They end with the server also
where sandboxes are durable, but for those of a durable Reset: their records say how another environment goes on. A box is
that environment's whose id its label has. What a cancelled call was making is undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar

from rock_env.errors import EnvLost, FailedPrecondition, NotFound, RockError
from rock_env.guest.steering import Steering
from rock_env.lifecycle import SandboxRecord, SandboxState
from rock_env.sandbox import Sandbox
from rock_env.server.capacity.admission import Grant
from rock_env.server.own_tasks import logged
from rock_env.server.sandboxes.checkpoints import CheckpointTree, TreeWish
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish, new_sandbox_id
from rock_env.spec import SandboxSpec

__all__ = ["EnvBoxes"]

T = TypeVar("T")
_ENV_ID = "env_id"


class EnvBoxes:
    """Makes, lends and freezes sandboxes for environments, each in the name of the present tenant."""

    def __init__(self, core: SandboxCore, *, idle_timeout_s: float) -> None:
        """`idle_timeout_s`: for how long a box that outlived its server waits for an environment to go on in it."""
        self._core = core
        self._idle_timeout_s = idle_timeout_s
        self._tree = CheckpointTree(core)

    async def create(
        self,
        spec: SandboxSpec,
        *,
        environment: str,
        env_id: str,
        snapshot_id: str = "",
        place: Grant | None = None,
        durable: bool = False,
    ) -> str:
        """Make a box and return its sandbox id: a fresh one, or one from a snapshot, whose spec it then has.

        `place` is one that it has already, and needs not wait for. A `durable` one outlives the server once `keep` says how.
        """
        backend = ""
        durable = durable and self._core.durable
        if snapshot_id:
            snapshot = await self._tree.ready(snapshot_id)
            spec, backend = snapshot.spec, snapshot.backend
        wish = SandboxWish(
            spec,
            environment=environment,
            labels={_ENV_ID: env_id},
            ephemeral=not durable,
            episode=b"" if durable else None,
            idle_timeout_s=self._idle_timeout_s if durable else None,
            snapshot_id=snapshot_id,
            backend=backend,
            place=place,
            sandbox_id=new_sandbox_id(),
        )
        await self._whole(self._core.create(wish), lambda: self.delete(wish.sandbox_id))
        return wish.sandbox_id

    async def keep(self, sandbox_id: str, episode: bytes, *, env_id: str) -> bool:
        """Note in the record how another environment goes on in the box; return whether one can, once the server ended.

        Raise `EnvLost` if the box ended, or is another environment's by now.
        """

        def keeping(record: SandboxRecord) -> SandboxRecord:
            if record.labels.get(_ENV_ID) != env_id:
                raise _taken_over(sandbox_id)
            return replace(record, episode=episode)

        try:
            if not (await self._core.get(sandbox_id)).durable:
                return False
            await self._core.amend(sandbox_id, keeping)
        except (NotFound, FailedPrecondition) as error:
            raise _gone(error) from error
        return bool(episode)

    async def kept_in(self, sandbox_id: str) -> tuple[bytes, str]:
        """Return what `keep` noted of a box and the id of the environment that did. Raise `FailedPrecondition` for none."""
        record = await self._core.get(sandbox_id)
        if record.state is not SandboxState.RUNNING or not record.episode:
            why = "it has no episode that an environment could go on with"
            if record.state is not SandboxState.RUNNING:
                why = f"it is {record.state} ({record.reason})"
            raise FailedPrecondition(
                f"sandbox {sandbox_id!r} cannot be taken over: {why}. Make an environment and reset it."
            )
        return record.episode, record.labels[_ENV_ID]

    async def hand_over(self, sandbox_id: str, former: str, env_id: str) -> None:
        """Make a box another environment's. Raise `FailedPrecondition` where it is neither the former one's nor its own.

        It is its own where a call before was told that the store was away, and the record was stored all the same.
        """

        def handed(record: SandboxRecord) -> SandboxRecord:
            if record.state is not SandboxState.RUNNING:
                raise FailedPrecondition(f"sandbox {sandbox_id!r} is {record.state} ({record.reason}).")
            if record.labels.get(_ENV_ID) not in (former, env_id) or not record.episode:
                raise FailedPrecondition(f"sandbox {sandbox_id!r} was taken over by another call just now.")
            return replace(record, labels={**record.labels, _ENV_ID: env_id})

        await self._core.amend(sandbox_id, handed)

    @asynccontextmanager
    async def using(self, sandbox_id: str, *, env_id: str = "") -> AsyncIterator[Sandbox]:
        """Lend the box to one call, of an environment if that is named.

        Raise `EnvLost` if it ended, such as by its lifetime or by its user's Delete, or is another environment's by now.
        """
        async with AsyncExitStack() as lent:
            try:
                box = await lent.enter_async_context(self._core.using(sandbox_id))
            except NotFound as error:
                raise _gone(error) from error
            if env_id and not await self._is_of(sandbox_id, env_id):
                raise _taken_over(sandbox_id)
            yield box

    async def _is_of(self, sandbox_id: str, env_id: str) -> bool:
        return (await self._core.get(sandbox_id)).labels.get(_ENV_ID) == env_id

    def idle_s(self, sandbox_id: str) -> float:
        """Return for how long no call has used the box; infinity for one that is gone."""
        return self._core.idle_s(sandbox_id)

    async def spec_of(self, sandbox_id: str) -> SandboxSpec:
        """Return what the box was made of, its image as its content: a name may mean another one by now."""
        return (await self._core.get(sandbox_id)).spec

    async def delete(self, sandbox_id: str, *, env_id: str = "") -> None:
        """Destroy the box, if it is still there and, where an environment is named, that one's."""
        only = (lambda record: record.labels.get(_ENV_ID) == env_id) if env_id else None
        with suppress(NotFound):
            if not env_id or await self._is_of(sandbox_id, env_id):  # of another server's, the store knows
                await self._core.delete(sandbox_id, only=only)

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


def _gone(error: RockError) -> EnvLost:
    return EnvLost(f"the environment's sandbox is gone: {error.message}.")


def _taken_over(sandbox_id: str) -> EnvLost:
    return EnvLost(f"sandbox {sandbox_id!r} was taken over by another environment.")


async def _undone(making: asyncio.Task[Any], undo: Callable[[], Awaitable[None]]) -> None:
    async def made_or_not() -> None:
        await making

    async def undoing() -> None:
        await undo()

    await logged(undoing())  # ends also its wait for a place
    await logged(made_or_not())
    await logged(undoing())
