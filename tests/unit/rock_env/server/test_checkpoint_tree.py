"""The checkpoint tree over a node in memory: contents, references and keys, whatever is done in whatever order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_backend import Files, Killed, MemoryBackend, Node, killable_store
from tree_server import CALLER, Server, again, killed_amid_its_start, started

from rock_env.backends.router import BackendRouter
from rock_env.errors import (
    FailedPrecondition,
    InfraError,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    Unimplemented,
)
from rock_env.lifecycle import SandboxState
from rock_env.server.sandboxes import checkpoints
from rock_env.server.sandboxes.checkpoints import CheckpointTree, TreeWish
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.snapshots import SnapshotState, Uses
from rock_env.spec import SandboxSpec
from rock_env.store.base import Query, SnapshotQuery

T = TypeVar("T")
STARTS = st.lists(st.integers(0, 24), max_size=2)
"""After how many calls to node and store each of the next servers is killed."""


class Tree(RuleBasedStateMachine):
    """The tree beside a model: dicts of contents, and who builds upon what."""

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.node = Node()
        self.store = self.do(killable_store(self.node))
        self.server = self.do(started(self.node, self.store))
        self.boxes: dict[str, Files] = {}
        self.base: dict[str, str] = {}
        self.content: dict[str, Files] = {}
        self.parent: dict[str, str] = {}
        self.ready: dict[str, None] = {}  # in order, so that a failure can be repeated

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        self.do(self.server.kill())
        self.node.calls_left = None
        self.do(self.store.close())
        self.loop.close()

    def do(self, act: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(act)

    def froze(self, box: str, snapshot_id: str) -> None:
        self.parent[snapshot_id], self.base[box] = self.base[box], snapshot_id
        self.content[snapshot_id] = dict(self.boxes[box])

    def began(self, box: str, snapshot_id: str) -> None:
        self.boxes[box], self.base[box] = dict(self.content.get(snapshot_id, {})), snapshot_id

    @rule()
    def create(self) -> None:
        self.began(self.do(self.server.make()), "")

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def create_from(self, data: st.DataObject) -> None:
        snapshot_id = data.draw(st.sampled_from(list(self.ready)))
        self.began(self.do(self.server.make(snapshot_id)), snapshot_id)

    @precondition(lambda self: self.boxes)
    @rule(data=st.data(), path=st.sampled_from("abc"), content=st.binary(max_size=2))
    def write(self, data: st.DataObject, path: str, content: bytes) -> None:
        box = data.draw(st.sampled_from(list(self.boxes)))
        self.do(self.server.write(box, path, content))
        self.boxes[box][path] = content

    @precondition(lambda self: self.boxes)
    @rule(data=st.data())
    def snapshot(self, data: st.DataObject) -> None:
        box = data.draw(st.sampled_from(list(self.boxes)))
        made = self.do(self.server.tree.snapshot(box, TreeWish()))
        assert made.parent == self.base[box]
        self.froze(box, made.id)
        self.ready[made.id] = None

    @precondition(lambda self: self.boxes)
    @rule(data=st.data())
    def fail_to_snapshot(self, data: st.DataObject) -> None:
        box = data.draw(st.sampled_from(list(self.boxes)))
        self.node.fail["snapshot"] = InfraError("no space left")
        with pytest.raises(InfraError, match="no space"):
            self.do(self.server.tree.snapshot(box, TreeWish()))

    @precondition(lambda self: self.boxes and self.ready)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        box, snapshot_id = (data.draw(st.sampled_from(list(each))) for each in (self.boxes, self.ready))
        self.do(self.server.tree.restore(box, snapshot_id))
        self.began(box, snapshot_id)

    @precondition(lambda self: self.boxes)
    @rule(data=st.data(), count=st.integers(1, 3))
    def fork(self, data: st.DataObject, count: int) -> None:
        box = data.draw(st.sampled_from(list(self.boxes)))
        forks = self.do(self.server.tree.fork(box, count, TreeWish()))
        self.froze(box, forks[0].snapshot_id)
        for fork in forks:
            self.began(fork.id, fork.snapshot_id)
        assert len({fork.id for fork in forks}) == count

    @precondition(lambda self: self.boxes)
    @rule(data=st.data())
    def fail_to_fork(self, data: st.DataObject) -> None:
        box = data.draw(st.sampled_from(list(self.boxes)))
        self.node.fail["create"] = ResourceExhausted("full")
        with pytest.raises(ResourceExhausted, match="full"):
            self.do(self.server.tree.fork(box, 3, TreeWish()))
        self.froze(box, self.node.boxes[box].base)

    @precondition(lambda self: self.boxes)
    @rule(data=st.data())
    def delete_box(self, data: st.DataObject) -> None:
        box = data.draw(st.sampled_from(list(self.boxes)))
        self.do(self.server.core.delete(box))
        del self.boxes[box], self.base[box]

    @precondition(lambda self: self.ready)
    @rule(data=st.data())
    def delete_snapshot(self, data: st.DataObject) -> None:
        snapshot_id = data.draw(st.sampled_from(list(self.ready)))
        gone = self.do(self.server.tree.delete(snapshot_id)).state is SnapshotState.COLLECTED
        assert gone == (snapshot_id not in self.node.layers)
        del self.ready[snapshot_id]
        with pytest.raises(NotFound, match="was deleted"):
            self.do(self.server.make(snapshot_id))

    @rule()
    def restart(self) -> None:
        self.do(self.server.kill())
        self.server = self.do(started(self.node, self.store))

    def killed_amid(self, act: Coroutine[Any, Any, T], calls: int, starts: list[int]) -> T | None:
        """Return the answer, if the server lived to give it. Its successors are killed at their start, too."""
        self.node.calls_left = calls
        answer: T | None = None
        with suppress(Killed):
            answer = self.do(act)
        self.do(self.server.kill())
        for calls in starts:
            self.do(killed_amid_its_start(self.node, self.store, calls))
        self.server = self.do(started(self.node, self.store))
        return answer

    # Whatever was not answered happened or did not; nothing else may differ.

    @precondition(lambda self: self.boxes)
    @rule(data=st.data(), calls=st.integers(0, 5), starts=STARTS)
    def be_killed_amid_snapshot(self, data: st.DataObject, calls: int, starts: list[int]) -> None:
        box = data.draw(st.sampled_from(list(self.boxes)))
        made = self.killed_amid(self.server.tree.snapshot(box, TreeWish()), calls, starts)
        if made is not None:
            self.froze(box, made.id)
            self.ready[made.id] = None
        elif self.node.boxes[box].base != self.base[box]:  # a layer without a name, until the box goes
            self.froze(box, self.node.boxes[box].base)

    @precondition(lambda self: self.boxes)
    @rule(data=st.data(), calls=st.integers(0, 14), starts=STARTS)
    def be_killed_amid_fork(self, data: st.DataObject, calls: int, starts: list[int]) -> None:
        box = data.draw(st.sampled_from(list(self.boxes)))
        forks = self.killed_amid(self.server.tree.fork(box, 2, TreeWish()), calls, starts)
        if forks is not None:
            self.froze(box, forks[0].snapshot_id)
            for fork in forks:
                self.began(fork.id, fork.snapshot_id)
        elif self.node.boxes[box].base != self.base[box]:
            self.froze(box, self.node.boxes[box].base)

    @precondition(lambda self: self.boxes and self.ready)
    @rule(data=st.data(), calls=st.integers(0, 7), starts=STARTS)
    def be_killed_amid_restore(self, data: st.DataObject, calls: int, starts: list[int]) -> None:
        box, snapshot_id = (data.draw(st.sampled_from(list(each))) for each in (self.boxes, self.ready))
        restored = self.killed_amid(self.server.tree.restore(box, snapshot_id), calls, starts)
        moved = self.node.boxes[box].base == snapshot_id != self.base[box]
        if restored is not None or moved or self.node.files(box) != self.boxes[box]:
            self.began(box, snapshot_id)

    @precondition(lambda self: self.boxes)
    @rule(data=st.data(), calls=st.integers(0, 14), starts=STARTS)
    def be_killed_amid_delete(self, data: st.DataObject, calls: int, starts: list[int]) -> None:
        box = data.draw(st.sampled_from(list(self.boxes)))
        deleted = self.killed_amid(self.server.core.delete(box), calls, starts)
        assert deleted is None or box not in self.node.boxes
        if box not in self.node.boxes:
            del self.boxes[box], self.base[box]

    @invariant()
    def contents_are_the_models(self) -> None:
        if hasattr(self, "server"):
            assert {box: self.node.files(box) for box in self.node.boxes} == self.boxes
            for snapshot_id in self.ready:
                assert self.node.content(snapshot_id) == self.content[snapshot_id]

    @invariant()
    def records_are_the_models(self) -> None:
        if hasattr(self, "server"):
            found = self.do(self.server.core.find(Query(states=frozenset({SandboxState.RUNNING}))))
            assert {record.id: record.snapshot_id for record in found} == self.base
            assert {box: self.node.boxes[box].base for box in self.boxes} == self.base
            assert not any(record.restoring or record.leaving_snapshot_id for record in found)
            ready = self.do(self.server.tree.find(SnapshotQuery(states=frozenset({SnapshotState.READY}))))
            assert {record.id for record in ready} == set(self.ready)
            assert all(record.parent == self.parent[record.id] for record in ready)

    @invariant()
    def exactly_the_needed_layers_are_kept(self) -> None:
        if hasattr(self, "server"):
            needed: set[str] = set()
            for each in (*self.ready, *self.base.values()):
                while each and each not in needed:
                    needed.add(each)
                    each = self.parent[each]
            assert set(self.node.layers) == needed
            assert not self.node.misuse


TestTree = Tree.TestCase
TestTree.settings = settings(max_examples=50, stateful_step_count=20)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    node = Node()
    async with await killable_store(node) as store:
        made = await started(node, store)
        yield made
        await made.kill()
        node.calls_left = None


async def test_a_key_makes_one_snapshot_and_one_fork_also_after_a_restart(server: Server) -> None:
    box = await server.make()
    wish = TreeWish(key="k", digest="d", labels={"a": "b"})
    made = await asyncio.gather(*(server.tree.snapshot(box, wish) for _ in range(3)))
    forks = await asyncio.gather(*(server.tree.fork(box, 2, wish) for _ in range(3)))
    assert len({each.id for each in made}) == 1
    ids = {tuple(fork.id for fork in fork) for fork in forks}
    assert len(ids) == 1
    server = await again(server)
    assert (await server.tree.snapshot(box, wish)).id == made[0].id
    assert {tuple(each.id for each in await server.tree.fork(box, 2, wish))} == ids
    assert len(server.node.layers) == 2
    assert len(server.node.boxes) == 3
    await server.core.delete(box)
    await server.tree.delete(made[0].id)
    assert (await server.tree.snapshot(box, wish)).state is SnapshotState.DELETED, "its answer never changes"
    for each in ids.pop():
        await server.core.delete(each)
    assert {each.state for each in await server.tree.fork(box, 2, wish)} == {SandboxState.DELETED}
    assert not server.node.layers
    with pytest.raises(FailedPrecondition, match="'k' was used for another request"):
        await server.tree.snapshot(box, TreeWish(key="k", digest="other"))
    await server.kill()


async def test_a_failed_snapshot_or_fork_leaves_its_key_free(server: Server) -> None:
    box = await server.make()
    wish = TreeWish(key="k", digest="d")
    server.node.fail["snapshot"] = Unimplemented("no layers here")
    with pytest.raises(Unimplemented):
        await server.tree.snapshot(box, wish)
    server.node.fail["create"] = ResourceExhausted("full")
    with pytest.raises(ResourceExhausted):
        await server.tree.fork(box, 3, wish)
    assert set(server.node.boxes) == {box}
    assert (await server.core.get(box)).snapshot_id == server.node.boxes[box].base
    assert (await server.tree.snapshot(box, wish)).state is SnapshotState.READY
    assert len(await server.tree.fork(box, 3, wish)) == 3


async def test_uses_are_counted(server: Server) -> None:
    box = await server.make()
    first = await server.tree.snapshot(box, TreeWish())
    await server.write(box, "a", b"12345")
    second = await server.tree.snapshot(box, TreeWish())
    await server.make(first.id)
    counted = await server.tree.uses([first, second])
    assert (counted[first.id], counted[second.id]) == (Uses(1, 1), Uses(0, 1))
    assert (second.bytes, second.parent, second.sandbox_id) == (5, first.id, box)
    assert (await server.tree.delete(first.id)).state is SnapshotState.DELETED
    assert (await server.tree.delete(first.id)).state is SnapshotState.DELETED


async def test_only_what_runs_can_be_frozen_and_restored(server: Server) -> None:
    box = await server.make()
    snapshot = await server.tree.snapshot(box, TreeWish())
    await server.write(box, "a", b"x")
    await server.core.pause(box)
    await server.tree.snapshot(box, TreeWish())
    restored = await server.tree.restore(box, snapshot.id)
    assert (restored.state, restored.reason) == (
        SandboxState.RUNNING,
        f"restored to snapshot {snapshot.id}",
    )
    assert not server.node.boxes[box].paused
    assert server.node.files(box) == {}
    server.node.fail["restore"] = NotFound("no such layer")
    with pytest.raises(NotFound):
        await server.tree.restore(box, snapshot.id)
    assert (await server.core.get(box)).state is SandboxState.RUNNING
    server.node.fail["restore"] = InfraError("broken")
    with pytest.raises(InfraError):
        await server.tree.restore(box, snapshot.id)
    assert (await server.core.get(box)).state is SandboxState.FAILED
    for act in (server.tree.snapshot(box, TreeWish()), server.tree.fork(box, 1, TreeWish())):
        with pytest.raises(FailedPrecondition, match="only one that runs"):
            await act
    with pytest.raises(FailedPrecondition, match="FAILED"):
        await server.tree.restore(box, snapshot.id)
    with pytest.raises(NotFound, match="ListSnapshots"):
        await server.tree.restore(box, "sn-no")
    with pytest.raises(InvalidArgument, match="expected 1 to"):
        await server.tree.fork(box, 0, TreeWish())
    await server.core.delete(box)
    assert not server.node.boxes


@pytest.mark.parametrize("calls", range(7))
async def test_a_restore_of_a_box_without_layers_is_done_or_undone_by_the_next_server(
    server: Server, calls: int
) -> None:
    """Found as: create, create, snapshot of the first, be_killed_amid(calls=2, verb="restore") of the second, snapshot."""
    source, box = await server.make(), await server.make()
    await server.write(source, "a", b"source")
    await server.write(box, "a", b"box")
    wanted = await server.tree.snapshot(source, TreeWish())
    server.node.calls_left = calls
    with suppress(Killed):
        await server.tree.restore(box, wanted.id)
    server = await again(server)
    done = server.node.files(box) == {"a": b"source"}
    assert done or calls < 3, "so many calls were enough to record it"
    assert done or server.node.files(box) == {"a": b"box"}
    base = wanted.id if done else ""
    record = await server.core.get(box)
    assert (record.snapshot_id, record.leaving_snapshot_id, record.restoring) == (base, "", False)
    above = await server.tree.snapshot(box, TreeWish())
    assert above.parent == server.node.layers[above.id].parent == base
    await server.kill()


async def test_a_box_that_a_restore_broke_keeps_both_layers_until_it_is_deleted(server: Server) -> None:
    box, other = await server.make(), await server.make()
    left, wanted = [await server.tree.snapshot(each, TreeWish()) for each in (box, other)]
    await server.core.delete(other)
    server.node.fail["restore"] = InfraError("broken")
    with pytest.raises(InfraError):
        await server.tree.restore(box, wanted.id)
    for snapshot in (left, wanted):
        await server.tree.delete(snapshot.id)
    assert set(server.node.layers) == {left.id, wanted.id}
    await server.core.delete(box)
    assert not server.node.layers
    assert not server.node.misuse


async def test_a_lost_box_is_not_confused_with_a_restored_one(server: Server) -> None:
    box = await server.make()
    snapshot = await server.tree.snapshot(box, TreeWish())
    await server.tree.restore(box, snapshot.id)
    await asyncio.sleep(0)
    assert (await server.core.get(box)).state is SandboxState.RUNNING
    server.backend.boxes[box].gone.set_result("it broke")
    async for record in server.core.watch({}, after_revision=1):
        if record.state is SandboxState.FAILED:
            assert record.reason == "it broke"
            break


async def test_tenants_have_trees_of_their_own(server: Server) -> None:
    CALLER.set("a")
    box = await server.make()
    theirs = await server.tree.snapshot(box, TreeWish(key="k"))
    CALLER.set("b")
    mine = await server.make()
    for act in (
        server.tree.snapshot(box, TreeWish()),
        server.tree.fork(box, 1, TreeWish()),
        server.tree.restore(mine, theirs.id),
        server.tree.get(theirs.id),
        server.tree.delete(theirs.id),
    ):
        with pytest.raises(NotFound):
            await act
    assert (await server.tree.snapshot(mine, TreeWish(key="k"))).id != theirs.id
    assert theirs.id not in {record.id for record in await server.tree.find(SnapshotQuery())}


async def test_what_a_killed_server_kept_in_memory_is_given_up(server: Server) -> None:
    box = await server.make()
    for_an_env = await server.tree.snapshot(box, TreeWish(ephemeral=True))
    by_name = await server.tree.snapshot(box, TreeWish())
    await server.core.delete(box)
    server.node.layers["sn-stray"] = server.node.layers[by_name.id]
    server = await again(server)
    assert set(server.node.layers) == {for_an_env.id, by_name.id}, "one builds upon the other"
    await server.tree.delete(by_name.id)
    assert not server.node.layers
    await server.kill()


@pytest.mark.parametrize("ids", ["sn-1 sn-2 sn-3", "sn-3 sn-2 sn-1", "sn-2 sn-3 sn-1"])
@pytest.mark.parametrize("calls", range(2, 9))
async def test_layers_that_a_killed_server_left_are_removed_children_first(
    server: Server, monkeypatch: pytest.MonkeyPatch, ids: str, calls: int
) -> None:
    """Found as: create, fail_to_fork, fork(1), delete_box of the source, be_killed_amid(calls=4, verb="delete")."""
    unused = iter(ids.split())
    monkeypatch.setattr(checkpoints, "new_snapshot_id", lambda maker: next(unused))
    box = await server.make()
    for _ in range(3):
        await server.tree.delete((await server.tree.snapshot(box, TreeWish())).id)
    server.node.calls_left = calls
    with suppress(Killed):
        await server.core.delete(box)
    server = await again(server)
    if calls >= 6:
        assert box not in server.node.boxes, "so many calls were enough for the box"
    if box in server.node.boxes:
        await server.core.delete(box)
    assert not server.node.layers
    assert not server.node.misuse
    await server.kill()


async def test_a_layer_waits_for_the_removal_of_all_that_was_built_upon_it(server: Server) -> None:
    """Two sandboxes go at once, and the layer of the one that was first takes longer to remove."""
    source = await server.make()
    below = await server.tree.snapshot(source, TreeWish())
    boxes = [await server.make(below.id) for _ in range(2)]
    above = [await server.tree.snapshot(box, TreeWish()) for box in boxes]
    for snapshot in (below, *above):
        await server.tree.delete(snapshot.id)
    await server.core.delete(source)
    begun, may_end, remove = asyncio.Event(), asyncio.Event(), server.backend.delete_snapshot

    async def slow(snapshot_id: str) -> None:
        if snapshot_id == above[0].id:
            begun.set()
            await may_end.wait()
        await remove(snapshot_id)

    server.backend.delete_snapshot = slow  # type: ignore[method-assign]
    first = asyncio.create_task(server.core.delete(boxes[0]))
    await begun.wait()
    second = asyncio.create_task(server.core.delete(boxes[1]))
    await asyncio.wait({second}, timeout=0.2)  # time for what must not happen
    may_end.set()
    await asyncio.gather(first, second)
    assert not server.node.layers
    assert not server.node.misuse


async def test_a_snapshot_whose_layer_is_gone_is_no_longer_offered(server: Server) -> None:
    snapshot = await server.tree.snapshot(await server.make(), TreeWish())
    server.node.layers.clear()
    server.node.boxes.clear()
    server = await again(server)
    with pytest.raises(NotFound, match="was deleted"):
        await server.make(snapshot.id)
    await server.kill()


async def test_a_sandbox_of_a_snapshot_has_its_image() -> None:
    async with await killable_store(Node()) as store:
        tree = CheckpointTree(SandboxCore(BackendRouter(MemoryBackend(Node(), "docker")), store))
        async with tree._core as core:
            box = await core.create(SandboxWish(SandboxSpec(image="debian", lifetime_s=5)))
            snapshot = await tree.snapshot(box.id, TreeWish())
            assert tree.spec_for(snapshot, None) == box.spec
            asked = tree.spec_for(snapshot, SandboxSpec(lifetime_s=9))
            assert (asked.image, asked.lifetime_s) == ("debian", 9)
            with pytest.raises(InvalidArgument, match="'debian', got the image 'busybox'"):
                tree.spec_for(snapshot, SandboxSpec(image="busybox"))
