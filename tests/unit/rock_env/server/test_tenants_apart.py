"""The sandbox core and a backend that keeps tenants apart: whose boxes are made where, and what stock is not for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from memory_backend import MemoryBackend, Node, killable_store

from rock_env.backends.base import Backend
from rock_env.backends.observed import observed
from rock_env.backends.pool import PooledBackend
from rock_env.errors import PermissionDenied
from rock_env.lifecycle import SandboxState
from rock_env.security.auth import acting_for, current_tenant
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.spec import SandboxSpec


class ApartBackend(MemoryBackend):
    """Each of two tenants has a node of its own."""

    def __init__(self) -> None:
        super().__init__(Node())
        self.own = {"a": MemoryBackend(Node()), "b": MemoryBackend(Node())}

    def own_part(self, tenant: str) -> Any:
        if tenant == "nobody":
            raise PermissionDenied("no namespace")
        return self.own.get(tenant)

    async def census(self) -> dict[str, str]:
        counted = await super().census()
        for part in self.own.values():
            counted |= await part.census()
        return counted


@asynccontextmanager
async def serving(backend: Backend) -> AsyncIterator[SandboxCore]:
    async with (
        await killable_store(Node()) as store,
        SandboxCore(backend, store, tenant=current_tenant) as core,
    ):
        yield core


async def test_a_box_is_made_in_its_tenants_part_and_one_without_is_made_nowhere() -> None:
    apart = ApartBackend()
    async with serving(PooledBackend(observed(apart, None))) as core:  # type: ignore[arg-type]
        for tenant in ("a", "b", "c"):
            with acting_for(tenant):
                await core.create(SandboxWish(SandboxSpec()))
        assert [len(part.node.boxes) for part in (*apart.own.values(), apart)] == [1, 1, 1]
        with acting_for("nobody"), pytest.raises(PermissionDenied):
            await core.create(SandboxWish(SandboxSpec()))
        (counted,) = await core.census()
        assert (counted.boxes, counted.records, dict(counted.orphans), dict(counted.ghosts)) == (3, 3, {}, {})


async def test_stock_is_for_those_who_share_its_part_alone() -> None:
    apart = ApartBackend()
    pool = PooledBackend(observed(apart, None))  # type: ignore[arg-type]
    async with serving(pool) as core:
        pool.set_target(SandboxSpec(), 1)
        async with asyncio.timeout(60):
            while not pool.stock:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        (stocked,) = pool.stock
        with acting_for("a"):
            own = await core.create(SandboxWish(SandboxSpec()))
        with acting_for("c"):
            shared = await core.create(SandboxWish(SandboxSpec()))
        assert (own.state, set(apart.own["a"].node.boxes)) == (SandboxState.RUNNING, {own.box_id})
        assert (shared.box_id, own.box_id == stocked) == (stocked, False)
    await pool.close()
