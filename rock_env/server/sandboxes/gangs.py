"""Groups of sandboxes made all or none: one admission for the whole group, then every one of them, or none is left.

A group holds nothing while it waits, so two groups that each need most of the node cannot block each other. Repeated
under its key it returns the same sandboxes, also across a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from rock_env.errors import FailedPrecondition, InvalidArgument, RockError
from rock_env.lifecycle import SandboxRecord
from rock_env.server.capacity.quotas import Ask
from rock_env.server.own_tasks import logged
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.store.base import Query

__all__ = ["GANG_LABEL", "MAX_GANG", "Gangs"]

MAX_GANG = 1024
GANG_LABEL = "rock/gang"
"""The label by which the sandboxes of a keyed group are found again."""


class Gangs:
    """The groups of one server's sandboxes."""

    def __init__(self, core: SandboxCore) -> None:
        self._core = core
        self._making: dict[tuple[str, str], asyncio.Task[list[SandboxRecord]]] = {}

    async def create(
        self, wishes: Sequence[SandboxWish], *, key: str = "", wait_s: float | None = None
    ) -> list[SandboxRecord]:
        """Return a running sandbox for each wish, in their order. Raise what the first one failed with; then none is left.

        Raise `ResourceExhausted` if there is no place for all of them at once within `wait_s`.
        """
        if not 1 <= len(wishes) <= MAX_GANG:
            raise InvalidArgument(f"a group must be of 1 to {MAX_GANG} sandboxes, got {len(wishes)}")
        if not key:
            return await self._core.tasks.run(self._make(wishes, wait_s))
        keyed = [_member(wish, key, number) for number, wish in enumerate(wishes)]
        name = (self._core.ledger.tenant(), key)
        task = self._making.get(name)
        if task is None:
            task = self._making[name] = self._core.tasks.spawn(self._known_or_made(key, keyed, wait_s))
            task.add_done_callback(lambda _: self._making.pop(name, None))
        made = await self._core.tasks.outcome(task)
        if [record.request_digest for record in made] != [wish.digest for wish in keyed]:
            raise FailedPrecondition(f"idempotency key {key!r} was used for another group; take a new one")
        return made

    async def _known_or_made(
        self, key: str, wishes: Sequence[SandboxWish], wait_s: float | None
    ) -> list[SandboxRecord]:
        found = [
            record
            for record in await self._core.find(Query(labels={GANG_LABEL: key}))
            if record.idempotency_key.startswith(f"{GANG_LABEL}/{key}/")
        ]
        if found:
            return sorted(found, key=lambda record: int(record.idempotency_key.rpartition("/")[2]))
        return await self._make(wishes, wait_s)

    async def _make(self, wishes: Sequence[SandboxWish], wait_s: float | None) -> list[SandboxRecord]:
        asks = [Ask.of(wish.spec.resources) for wish in wishes]
        places = (
            await self._core.admission.admit(self._core.ledger.tenant(), asks, timeout_s=wait_s)
        ).split()
        made = await asyncio.gather(
            *(
                self._core.create(replace(wish, place=place))
                for wish, place in zip(wishes, places, strict=True)
            ),
            return_exceptions=True,
        )
        errors = [outcome for outcome in made if isinstance(outcome, BaseException)]
        if not errors:
            return [outcome for outcome in made if isinstance(outcome, SandboxRecord)]
        async with asyncio.TaskGroup() as group:
            for outcome, place in zip(made, places, strict=True):
                if isinstance(outcome, SandboxRecord):
                    group.create_task(logged(self._undo(outcome.id, errors[0])))
                else:
                    place.release()
        raise errors[0]

    async def _undo(self, sandbox_id: str, error: BaseException) -> None:
        held = self._core.ledger.held.get(sandbox_id)
        if held is not None:
            if isinstance(error, RockError):
                held.error = error  # and with it, its key becomes free
            await self._core.lives.destroy(held, "another sandbox of its group could not be made")


def _member(wish: SandboxWish, key: str, number: int) -> SandboxWish:
    if wish.key:
        raise InvalidArgument("the sandboxes of a group with an idempotency_key need none of their own")
    return replace(
        wish,
        key=f"{GANG_LABEL}/{key}/{number}",
        labels={**wish.labels, GANG_LABEL: key},
    )
