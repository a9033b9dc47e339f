"""How many snapshots a tenant may have, on a node in memory."""

from __future__ import annotations

import pytest
from memory_backend import MemoryBackend, Node, killable_store
from tree_server import CALLER

from rock_env.errors import ResourceExhausted
from rock_env.server.sandboxes.checkpoints import CheckpointTree, TreeWish
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.spec import SandboxSpec


async def test_a_tenant_has_so_many_snapshots_and_no_more() -> None:
    node = Node()
    async with (
        await killable_store(node) as store,
        SandboxCore(MemoryBackend(node), store, tenant=CALLER.get, most_snapshots=2) as core,
    ):
        tree = CheckpointTree(core)
        box = await core.create(SandboxWish(SandboxSpec()))
        first = await tree.snapshot(box.id, TreeWish())
        await tree.fork(box.id, 2, TreeWish())
        for act in (tree.snapshot(box.id, TreeWish()), tree.fork(box.id, 2, TreeWish())):
            with pytest.raises(ResourceExhausted, match=r"you have 2 snapshots.* at most 2 here") as full:
                await act
            assert full.value.retry_after_s
        CALLER.set("another")
        other = await core.create(SandboxWish(SandboxSpec()))
        await tree.snapshot(other.id, TreeWish())
        CALLER.set("")
        await tree.restore(box.id, first.id)
        assert len(core.ledger.held) == 4


async def test_the_snapshots_of_a_tenant_are_weighed_together() -> None:
    node = Node()
    async with (
        await killable_store(node) as store,
        SandboxCore(MemoryBackend(node), store, tenant=CALLER.get, most_snapshot_bytes=10) as core,
    ):
        tree = CheckpointTree(core)
        box = await core.create(SandboxWish(SandboxSpec()))
        async with core.using(box.id) as held:
            await held.write_file("f", b"twelve bytes")
        first = await tree.snapshot(box.id, TreeWish())
        assert first.bytes >= 10
        for act in (tree.snapshot(box.id, TreeWish()), tree.fork(box.id, 2, TreeWish())):
            with pytest.raises(ResourceExhausted, match=rf"hold {first.bytes} bytes.* may hold 10 here"):
                await act
        CALLER.set("another")
        other = await core.create(SandboxWish(SandboxSpec()))
        await tree.snapshot(other.id, TreeWish())
        CALLER.set("")
        await core.delete(box.id)
        await tree.delete(first.id)
        box = await core.create(SandboxWish(SandboxSpec()))
        await tree.snapshot(box.id, TreeWish())
