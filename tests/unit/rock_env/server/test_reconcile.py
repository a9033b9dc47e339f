"""A server that comes back, over a node in memory: what lives goes on, what is gone is said, orphans are destroyed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest
from memory_backend import Box, KillableStore, Killed, Layer, MemoryBackend, Node, killable_store

from rock_env.backends.router import BackendRouter
from rock_env.errors import InfraError, NotFound, Unavailable
from rock_env.lifecycle import SandboxRecord, SandboxState, born, transition
from rock_env.server.sandboxes.checkpoints import CheckpointTree, TreeWish
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.server.sandboxes.lives import GONE, NODE_GRACE_S, TAKEN_UP
from rock_env.spec import SandboxSpec
from rock_env.store.base import Query

RUNNING, PAUSED, FAILED = SandboxState.RUNNING, SandboxState.PAUSED, SandboxState.FAILED
DELETING, DELETED = SandboxState.DELETING, SandboxState.DELETED


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
async def store(node: Node) -> AsyncIterator[KillableStore]:
    made = await killable_store(node)
    yield made
    node.calls_left = None
    await made.close()


def server(node: Node, store: KillableStore) -> SandboxCore:
    node.calls_left = None
    return SandboxCore(MemoryBackend(node), store, durable=True)


async def kill(core: SandboxCore, node: Node) -> None:
    node.calls_left = 0
    core.ledger.deadlines.close()
    await core.tasks.finish(0)
    await core.lives.close()


async def after_a_kill(node: Node, store: KillableStore, *wishes: SandboxWish) -> list[SandboxRecord]:
    """Make sandboxes on a server and kill it."""
    core = server(node, store)
    await core.__aenter__()
    made = [await core.create(wish) for wish in wishes]
    await kill(core, node)
    return made


def told(record: SandboxRecord) -> list[tuple[SandboxState, str]]:
    return [(change.state, change.reason) for change in record.history]


async def test_running_and_paused_sandboxes_go_on(node: Node, store: KillableStore) -> None:
    core = server(node, store)
    await core.__aenter__()
    runs, paused = [
        await core.create(SandboxWish(SandboxSpec(), key=key, lease_s=100, idle_timeout_s=50)) for key in "ab"
    ]
    async with core.using(runs.id) as box:
        await box.write_file("a", b"x")
    await core.pause(paused.id)
    await kill(core, node)
    node.boxes[runs.id].paused = True  # killed between pausing the box and recording it
    node.boxes[paused.id].paused = False
    async with server(node, store) as core:
        again = await core.create(SandboxWish(SandboxSpec(), key="a"))
        assert (again.id, told(again)[-1]) == (runs.id, (RUNNING, TAKEN_UP))
        async with core.using(runs.id) as box:
            assert await box.read_file("a") == b"x"
        assert told(await core.get(paused.id))[-1] == (PAUSED, TAKEN_UP)
        assert (node.boxes[runs.id].paused, node.boxes[paused.id].paused) == (False, True)
        lease_s = node.boxes[runs.id].lease_s
        assert lease_s is not None
        assert 50 < lease_s < 100 + NODE_GRACE_S
        assert again.expires_at == runs.expires_at
        await core.resume(paused.id)
        await core.delete(runs.id)
    assert set(node.boxes) == {paused.id}, "a server that stops lets go of what is durable"
    async with server(node, store) as core:
        assert (await core.get(paused.id)).state is RUNNING


async def test_a_deadline_that_came_meanwhile_ends_a_sandbox_at_once(
    node: Node, store: KillableStore
) -> None:
    here, ended = await after_a_kill(
        node,
        store,
        SandboxWish(SandboxSpec(), lease_s=0.05),
        SandboxWish(SandboxSpec(), lease_s=0.05),
    )
    await asyncio.sleep(0.1)
    del node.boxes[ended.id]  # it ended by itself, as its lease told it
    async with server(node, store) as core:
        async for record in core.watch({}, after_revision=here.revision):
            if record.id == here.id and record.state is DELETED:
                assert told(record)[-3:] == [
                    (RUNNING, TAKEN_UP),
                    (DELETING, "its lease expired"),
                    (DELETED, "its lease expired"),
                ]
                break
        assert {change.reason for change in (await core.get(ended.id)).history[2:]} == {"its lease expired"}
    assert not node.boxes


async def test_what_is_gone_is_said(node: Node, store: KillableStore) -> None:
    (gone,) = await after_a_kill(node, store, SandboxWish(SandboxSpec(), key="k"))
    node.boxes.clear()
    async with server(node, store) as core:
        again = await core.create(SandboxWish(SandboxSpec(), key="k"))
        assert again.id == gone.id
        assert told(again)[2:] == [(state, GONE) for state in (FAILED, DELETING, DELETED)]


async def test_a_box_that_does_not_answer_is_failed_and_can_be_deleted(
    node: Node, store: KillableStore
) -> None:
    (broken,) = await after_a_kill(node, store, SandboxWish(SandboxSpec()))
    node.fail["adopt"] = InfraError("it hangs")
    async with server(node, store) as core:
        record = await core.get(broken.id)
        assert (record.state, record.reason) == (FAILED, "lost in a restart: it hangs")
    async with server(node, store) as core:  # it stays so
        assert (await core.get(broken.id)).state is FAILED
        assert (await core.delete(broken.id)).state is DELETED
    assert not node.boxes


async def test_a_box_that_hangs_can_be_deleted_all_the_same(
    node: Node, store: KillableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rock_env.server.sandboxes.box_call.QUICK_S", 0.05)
    async with server(node, store) as core:
        made = await core.create(SandboxWish(SandboxSpec()))
        node.hangs = True
        pausing = asyncio.create_task(core.pause(made.id))
        await asyncio.sleep(0)
        deleting = asyncio.create_task(core.delete(made.id))
        with pytest.raises(InfraError, match=r"pause of sandbox .* took longer than 0\.05 s"):
            await pausing
        assert (await deleting).state is DELETED


async def test_what_was_half_done_is_finished(node: Node, store: KillableStore) -> None:
    half = replace(born("sb-half", SandboxSpec(), backend="process", at=1.0), idempotency_key="k")
    dying = transition(
        born("sb-dying", SandboxSpec(), backend="process", at=1.0), DELETING, at=2.0, reason="why"
    )
    orphan = "sb-orphan"
    for record in (half, dying):
        await store.add(replace(record, durable=True))
    node.boxes.update({each: Box() for each in (half.id, dying.id, orphan)})
    async with server(node, store) as core:
        assert not node.boxes
        assert told(await core.get(half.id))[1:] == [
            (state, "server restarted") for state in (FAILED, DELETING, DELETED)
        ]
        assert told(await core.get(dying.id))[1:] == [(DELETING, "why"), (DELETED, "why")]
        assert (await core.create(SandboxWish(SandboxSpec(), key="k"))).id != half.id


async def test_what_ends_with_its_server_is_not_taken_up(node: Node, store: KillableStore) -> None:
    (ephemeral,) = await after_a_kill(node, store, SandboxWish(SandboxSpec(), ephemeral=True))
    async with server(node, store) as core:
        assert not node.boxes
        assert (await core.get(ephemeral.id)).reason == "server restarted"
        other = await core.create(SandboxWish(SandboxSpec(), ephemeral=True))
    assert (await store.get(other.id) or other).reason == "the server stopped"


async def test_an_engine_that_is_missing_at_the_start_is_asked_again(
    node: Node, store: KillableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, deleted = await after_a_kill(node, store, SandboxWish(SandboxSpec()), SandboxWish(SandboxSpec()))
    monkeypatch.setattr("rock_env.server.sandboxes.ledger.RETRY_S", 0.05)
    node.engine_missing = Unavailable("no engine at /run/engine.sock. Start it.")
    async with server(node, store) as core:
        assert (await core.get(kept.id)).state is RUNNING, "nothing is known to the contrary"
        for act in (core.using(kept.id).__aenter__(), core.pause(kept.id), core.renew(kept.id, 5)):
            with pytest.raises(Unavailable, match=r"cannot be reached .* no engine"):
                await act
        with pytest.raises(Unavailable, match="could not be deleted"):
            await core.delete(deleted.id)
        (census,) = await core.census()
        assert census.error.startswith("no engine")
        node.engine_missing = None
        seen: set[tuple[str, SandboxState]] = set()
        async for record in core.watch({}, after_revision=kept.revision):
            seen.add((record.id, record.state))
            if {(kept.id, RUNNING), (deleted.id, DELETED)} <= seen:
                break
        async with core.using(kept.id) as box:
            await box.write_file("a", b"x")
    assert set(node.boxes) == {kept.id}


async def test_a_server_without_the_backend_of_a_record_leaves_it_alone(
    node: Node, store: KillableStore
) -> None:
    (kept,) = await after_a_kill(node, store, SandboxWish(SandboxSpec()))
    node.calls_left = None
    async with SandboxCore(MemoryBackend(Node(), "docker"), store, durable=True) as core:
        with pytest.raises(Unavailable, match="runs without the backend 'process'; it has: docker"):
            await core.pause(kept.id)
    async with server(node, store) as core:
        assert told(await core.get(kept.id))[-1] == (RUNNING, TAKEN_UP)


async def test_a_fork_that_was_never_answered_is_undone(node: Node, store: KillableStore) -> None:
    core = server(node, store)
    await core.__aenter__()
    source = await core.create(SandboxWish(SandboxSpec()))
    forking = asyncio.create_task(CheckpointTree(core).fork(source.id, 2, TreeWish(key="k", digest="d")))
    for _ in range(100_000):
        if len(node.boxes) == 3:
            break
        await asyncio.sleep(0)
    node.calls_left = 0  # its sandboxes are there, and it is not recorded as done
    with pytest.raises(Killed):
        await forking
    await kill(core, node)
    async with server(node, store) as core:
        assert set(node.boxes) == {source.id}
        forks = [record for record in await core.find(Query()) if record.id != source.id]
        assert [(record.state, record.reason) for record in forks] == [(DELETED, "server restarted")] * 2
        assert len(await CheckpointTree(core).fork(source.id, 2, TreeWish(key="k", digest="d"))) == 2


async def test_the_census_tells_orphans_ghosts_and_strays(node: Node, store: KillableStore) -> None:
    docker = Node()
    router = BackendRouter(MemoryBackend(node), MemoryBackend(docker, "docker"))
    async with SandboxCore(router, store, durable=True) as core:
        here, ghost = [await core.create(SandboxWish(SandboxSpec())) for _ in range(2)]
        imaged = await core.create(SandboxWish(SandboxSpec(image="debian")))
        assert set(docker.boxes) == {imaged.id}
        snapshot = await CheckpointTree(core).snapshot(here.id, TreeWish())
        missing = await CheckpointTree(core).snapshot(imaged.id, TreeWish())
        assert [census.orphans or census.ghosts for census in await core.census()] == [{}, {}]
        del node.boxes[ghost.id], docker.layers[missing.id]
        node.boxes["sb-orphan"] = Box()
        node.layers["sn-stray"] = node.layers[snapshot.id]
        mine, other = await core.census(sweep=True)
        assert (mine.backend, mine.boxes, mine.records, mine.layers) == ("process", 2, 2, 2)
        assert (mine.orphans, mine.ghosts) == ({"sb-orphan": "box sb-orphan"}, {ghost.id: ghost.id})
        assert (mine.stray_layers, mine.missing_layers) == (("sn-stray",), ())
        assert (other.boxes, other.records, other.missing_layers) == (1, 1, (missing.id,))
        assert (set(node.boxes), set(node.layers)) == ({here.id}, {snapshot.id})


async def test_a_layer_that_a_killed_server_left_goes_with_the_next_start_beside_others(
    node: Node, store: KillableStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(node, store) as core:
        info = await core.create(SandboxWish(SandboxSpec()))
        kept = await CheckpointTree(core).snapshot(info.id, TreeWish())
        monkeypatch.setattr(type(core.ledger.ownership), "sole", AsyncMock(return_value=False))
        node.layers["sn-left"] = Layer("", {})  # no record needs it: its removal was cut off
        node.boxes["sb-other"] = Box()  # may be another server's, which is about to record it
        async with server(node, store):
            assert ({*node.layers}, "sb-other" in node.boxes) == ({kept.id}, True)


async def test_a_sweep_that_fails_says_what_is_left(node: Node, store: KillableStore) -> None:
    core = server(node, store)
    async with core:
        node.boxes |= {"stranger": Box(""), "other": Box("")}
        node.layers["sn-stray"] = Layer("", {})
        for method, left in (("destroy", "box stranger"), ("delete_snapshot", "layer sn-stray")):
            node.fail[method] = InfraError("device busy")
            with pytest.raises(InfraError, match=f"1 of what nothing needs.*{left}: device busy"):
                await core.census(sweep=True)
            node.layers["sn-stray"] = Layer("", {})
        assert "other" not in node.boxes, "one that cannot be removed costs no other"
        node.fail["snapshots"] = InfraError("no such folder")
        node.boxes["stranger"] = Box("")
        (counted,) = await core.census()
        assert list(counted.orphans) == ["stranger"], "the boxes are known all the same"
        assert (counted.layers, counted.error) == (
            0,
            "its layers could not be listed; the server's log says why",
        )


async def test_hundreds_of_sandboxes_are_taken_up(node: Node, store: KillableStore) -> None:
    core = server(node, store)
    await core.__aenter__()
    await asyncio.gather(*(core.create(SandboxWish(SandboxSpec())) for _ in range(300)))
    await kill(core, node)
    async with server(node, store) as core:
        running = await core.find(Query(states=frozenset({RUNNING})))
        assert len(running) == len(node.boxes) == 300
    with pytest.raises(NotFound):
        await core.get("sb-no")


async def test_a_sandbox_that_another_server_took_up_is_not_ended(node: Node, store: KillableStore) -> None:
    """A server that was stopped for a while does not know, and may find the sandbox idle."""
    async with server(node, store) as core:
        record = await core.create(SandboxWish(SandboxSpec(), idle_timeout_s=600.0))
        theirs = await store.save(replace(record, owner="n:other"))
        with pytest.raises(Unavailable, match="moving"):
            await core.lives.destroy(core.ledger.held[record.id], "it was idle too long")
        assert set(node.boxes) == {record.id}
        assert await store.get(record.id) == theirs
        node.boxes.clear()
