"""Two state folders of one node name, members that cannot be reached, and nodes that died: on real stores."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rock_env.backends.process.backend import ProcessBackend
from rock_env.errors import FailedPrecondition, Unavailable
from rock_env.lifecycle import SandboxRecord, SandboxState, born, transition
from rock_env.server.replicas.folder_id import folder_id
from rock_env.server.replicas.forward import ForwardInterceptor
from rock_env.server.replicas.member import Replica
from rock_env.server.replicas.seats import Seat
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.snapshots import SnapshotRecord, SnapshotState
from rock_env.spec import SandboxSpec
from rock_env.store.base import FOLDER_ID, SnapshotQuery
from rock_env.store.postgres.members import Members
from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import MIGRATIONS as POSTGRES_MIGRATIONS
from rock_env.store.sqlite.records import MIGRATIONS, SqliteStore

RUNNING, STARTING, DELETED = SandboxState.RUNNING, SandboxState.STARTING, SandboxState.DELETED


@pytest.fixture
async def store(new_database: Callable[[], str]) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(new_database()) as opened:
        yield opened


def box(sandbox_id: str, *, lease_s: float, **fields: Any) -> SandboxRecord:
    """Return the record of a durable box that runs, whose lease ends so long from now."""
    now = time.time()
    made = born(sandbox_id, SandboxSpec(), backend="process", at=now, lease_s=lease_s, idle_timeout_s=0.001)
    return replace(transition(made, RUNNING, at=now), durable=True, **fields)


async def ended(store: PostgresStore, sandbox_id: str) -> SandboxRecord:
    """Return the record once it is DELETED."""
    async with asyncio.timeout(20):
        while (now := await store.get(sandbox_id)) is None or now.state is not DELETED:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return now


@asynccontextmanager
async def replica(store: PostgresStore, root: Path, *, node: str, folder: str) -> AsyncIterator[Replica]:
    """Run a replica with a core that has process boxes in `root`."""
    await asyncio.to_thread(root.mkdir)
    own_id = f"{node}:{root.name}"
    backend = ProcessBackend(root=root, isolation="none", shared=True)
    address = f"unix://{root}/sock"
    seat = Seat(own_id=own_id, node=node, folder=folder, address=address, witnesses=root, lease_s=600)
    async with (
        Replica.joined(store, seat) as one,
        SandboxCore(backend, store, durable=True, ownership=one) as core,
        one.serve(core),
    ):
        yield one
    await backend.close()


def test_a_state_folder_has_one_id_whoever_asks_first(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = [*pool.map(folder_id, [tmp_path] * 8)]
    assert len(set(ids)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [FOLDER_ID]
    (tmp_path / FOLDER_ID).write_text("damaged")
    with pytest.raises(FailedPrecondition, match=r"got 'damaged' in .*, expected 32 characters"):
        folder_id(tmp_path)


async def test_another_folder_of_a_node_is_refused_while_a_member_lives(store: PostgresStore) -> None:
    members = Members(store)
    await members.join("n:1", node="n", folder="aaa", address="unix:///1", lease_s=600)
    with pytest.raises(FailedPrecondition) as caught:
        await members.join("n:2", node="n", folder="bbb", address="unix:///2", lease_s=600)
    said = str(caught.value)
    for words in ("server n:1 lives there", "id 'bbb', expected 'aaa'", "Nothing was changed", "--node"):
        assert words in said
    assert list(await members.all()) == ["n:1"]
    await members.join("n:3", node="n", folder="aaa", address="unix:///3", lease_s=600)
    await members.join("m:1", node="m", folder="bbb", address="unix:///4", lease_s=600)
    assert {it.folder for it in (await members.all()).values() if it.node == "n"} == {"aaa"}


async def test_of_two_folders_that_come_at_once_one_is_refused(store: PostgresStore) -> None:
    members = Members(store)
    joins = (
        members.join(f"n:{at}", node="n", folder=f"f{at % 2}", address="unix:///x", lease_s=600)
        for at in range(8)
    )
    outcomes = await asyncio.gather(*joins, return_exceptions=True)
    assert sum(isinstance(it, FailedPrecondition) for it in outcomes) == 4
    assert len({it.folder for it in (await members.all()).values()}) == 1


async def test_another_folder_of_a_node_is_refused_while_boxes_live(store: PostgresStore) -> None:
    members = Members(store)
    await members.join("n:1", node="n", folder="aaa", address="unix:///1", lease_s=0.01)
    kept = await store.add(box("sb-1", lease_s=600, owner="n:1", folder="aaa"))
    await store.add(box("sb-2", lease_s=600, owner="n:1", folder="aaa", tenant="t"))
    await members.leave("n:1")
    join = {"node": "n", "address": "unix:///2", "lease_s": 600}
    with pytest.raises(FailedPrecondition, match=r"2 live sandboxes are there, such as sb-1\."):
        await members.join("n:2", folder="bbb", **join)  # type: ignore[arg-type]
    assert not await members.all()
    assert await store.get("sb-1") == kept
    # Those whose lease is over have ended by themselves.
    for each in ("sb-1", "sb-2"):
        there = await store.get(each)
        assert there is not None
        await store.save(replace(there, owner="n:", lease_expires_at=time.time() - 1))
    await members.join("n:2", folder="bbb", **join)  # type: ignore[arg-type]


def frozen(snapshot_id: str, **fields: Any) -> SnapshotRecord:
    made = SnapshotRecord(snapshot_id, "process", SandboxSpec(), "sb-1", time.time())
    return replace(made, **{"state": SnapshotState.READY, **fields})


async def test_a_server_alone_on_its_node_leaves_another_nodes_snapshots_and_boxes(
    store: PostgresStore, tmp_path: Path
) -> None:
    making, ready = SnapshotState.MAKING, SnapshotState.READY
    await Members(store).join("m:1", node="m", folder="mmm", address="unix:///1", lease_s=600)
    await store.add(box("sb-1", lease_s=600, owner="m:1", folder="mmm", box_id="box-1"))
    for each in (
        frozen("there", folder="mmm"),
        frozen("there-ephemeral", folder="mmm", ephemeral=True),
        frozen("there-making", folder="mmm", state=making),
        frozen("here", folder="nnn"),
        frozen("here-ephemeral", folder="nnn", ephemeral=True),
        frozen("of-before"),
    ):
        await store.add_snapshot(each)
    async with replica(store, tmp_path / "one", node="n", folder="nnn") as one:
        found = {each.id: each.state for each in await store.find_snapshots(SnapshotQuery())}
        assert {name: found[name] for name in found if name.startswith("there")} == {
            "there": ready,
            "there-ephemeral": ready,
            "there-making": making,
        }
        for name in ("here", "here-ephemeral", "of-before"):  # its layer is gone, or its server
            assert found.get(name) not in (ready, making)
        assert one._core is not None
        (counted,) = await one._core.reconciler.census()
        assert "sb-1" not in counted.ghosts
        assert counted.missing_layers == ()


async def test_who_was_declared_dead_stays_out_while_another_folder_is_the_nodes(
    store: PostgresStore, tmp_path: Path
) -> None:
    async with replica(store, tmp_path / "one", node="n", folder="aaa") as one:
        await one.members.leave("n:one")
        await one.members.join("n:2", node="n", folder="bbb", address="unix:///2", lease_s=600)
        for _ in range(2):
            with pytest.raises(FailedPrecondition, match="server n:2 lives there"):
                await one._reborn()
        assert len(await asyncio.to_thread(lambda: [*tmp_path.rglob("*.lock")])) == 1, (
            "that of its first name"
        )
        await one.members.leave("n:2")
        await one._reborn()
        assert list(await one.members.all()) == [one.id]


async def test_a_file_is_refused_to_another_folder_while_boxes_live(tmp_path: Path) -> None:
    async with await SqliteStore.open(tmp_path / "store.db") as store:
        await store.register(node="n", folder="aaa")
        made = await store.add(box("sb-1", lease_s=600))
    async with await SqliteStore.open(tmp_path / "store.db") as store:
        for other in ("bbb", ""):
            with pytest.raises(
                FailedPrecondition, match=r"expected 'aaa' \(see its file folder-id\).*--store"
            ):
                await store.register(node="n", folder=other)
        await store.register(node="renamed", folder="aaa")
        assert await store.get("sb-1") == made
        await store.save(replace(made, lease_expires_at=time.time() - 1))
        await store.register(node="n", folder="bbb")
        # The only server of the file ends what is over by now.
        backend = ProcessBackend(root=tmp_path, isolation="none")
        async with SandboxCore(backend, store, durable=True) as core:
            ended = await core.get("sb-1")
        await backend.close()
    assert (ended.state, ended.reason) == (DELETED, "its lease expired")


async def test_stores_of_the_version_before_get_to_know_folders(
    tmp_path: Path, new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, file = new_database(), tmp_path / "store.db"
    with monkeypatch.context() as before:
        before.setattr("rock_env.store.sqlite.records.MIGRATIONS", MIGRATIONS[:-1])
        before.setattr("rock_env.store.postgres.schema.MIGRATIONS", POSTGRES_MIGRATIONS[:1])
        async with await SqliteStore.open(file) as old:
            made = await old.add(box("sb-1", lease_s=600))
        async with await PostgresStore.open(url) as shared:
            await shared.fetch(
                "INSERT INTO rock_replicas VALUES ('n:old', 'n', 'unix:///x', now() + '1 hour')"
            )
            first = await shared.add(box("sb-1", lease_s=600, owner="n:old"))
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) - 1,)
    async with await SqliteStore.open(file) as new:
        await new.register(node="n", folder="aaa")
        assert await new.get("sb-1") == made
    async with await PostgresStore.open(url) as shared:
        members = Members(shared)
        await members.join("n:new", node="n", folder="aaa", address="unix:///y", lease_s=600)
        assert [it.folder for it in (await members.all()).values()] == ["aaa", ""]
        assert await shared.get("sb-1") == first


async def test_a_box_in_another_folder_of_the_node_is_not_taken_over(
    store: PostgresStore, tmp_path: Path
) -> None:
    async with replica(store, tmp_path / "one", node="n", folder="aaa") as one:
        other = await store.add(box("sb-other", lease_s=600, owner="n:", folder="bbb"))
        old = await store.add(box("sb-old", lease_s=600, owner="n:"))
        # One that says nothing of its folder is the node's: it is taken, and its box is gone.
        assert (await ended(store, old.id)).folder == "aaa"
        assert await one.claim(other) is None
        await one.take(other)
        await one.take_all()
        began_at = time.monotonic()
        with pytest.raises(Unavailable, match="is on node 'n', in the state folder 'bbb'") as caught:
            await one.route(other.id, "")
        assert 0.5 < time.monotonic() - began_at < 5
        assert caught.value.retry_after_s == 1.0
        assert await store.get(other.id) == other


async def test_a_call_for_a_member_that_cannot_be_reached_fails_soon(
    store: PostgresStore, tmp_path: Path
) -> None:
    absent, silent = f"{tmp_path}/absent", f"{tmp_path}/silent"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(silent)
        listening.listen()  # it connects, and says nothing
        async with replica(store, tmp_path / "one", node="n", folder="aaa") as one:
            for node, folder, path in (("m", "bbb", absent), ("o", "ccc", silent)):
                owner = f"{node}:1"
                await one.members.join(owner, node=node, folder=folder, address=f"unix://{path}", lease_s=600)
                made = await store.add(box(f"sb-{folder}", lease_s=600, owner=owner, folder=folder))
                forward = ForwardInterceptor(one, b"secret")
                began_at = time.monotonic()
                with pytest.raises(Unavailable, match=f"replica {owner} .* cannot be reached at") as caught:
                    await forward.destination(made.id)
                assert 0.5 < time.monotonic() - began_at < 5
                assert caught.value.retry_after_s == 1.0
                await forward.close()


async def test_a_create_whose_key_is_on_a_dead_node_is_told_to_ask_again(
    store: PostgresStore, tmp_path: Path
) -> None:
    async with replica(store, tmp_path / "one", node="n", folder="aaa") as one:
        begun = replace(box("sb-1", lease_s=600, owner="m:", folder="bbb"), idempotency_key="k")
        begun = await store.add(replace(begun, history=begun.history[:1]))
        assert begun.state is STARTING
        with pytest.raises(Unavailable, match="is on node 'm'") as caught:
            await one.settled(begun)
        assert caught.value.retry_after_s


async def test_boxes_of_dead_nodes_end_with_their_lease(store: PostgresStore, tmp_path: Path) -> None:
    members = Members(store)
    await members.join("m:1", node="m", folder="bbb", address="unix:///m", lease_s=600)
    ends = time.time() + 2.5
    soon = await store.add(box("sb-soon", lease_s=2.5, owner="x:", folder="ddd"))
    begun = replace(box("sb-begun", lease_s=-1, owner="x:", folder="ddd"), idempotency_key="k")
    await store.add(replace(begun, history=begun.history[:1]))
    long = await store.add(box("sb-long", lease_s=600, owner="x:", folder="ddd"))
    theirs = await store.add(box("sb-theirs", lease_s=-1, owner="m:1", folder="bbb"))

    async with (
        replica(store, tmp_path / "one", node="n", folder="aaa"),
        replica(store, tmp_path / "two", node="o", folder="ccc"),
    ):
        assert (await ended(store, begun.id)).idempotency_key == "", (
            "its caller was never answered and may ask again"
        )
        now = await ended(store, soon.id)
        assert time.time() >= ends
        assert now.reason == "its lease expired, and no server of its node 'x' lives"
        assert [it.state for it in now.history].count(DELETED) == 1
        assert await store.get(theirs.id) == theirs, "its node lives"
        await members.leave("m:1")
        await ended(store, theirs.id)
        assert await store.get(long.id) == long
