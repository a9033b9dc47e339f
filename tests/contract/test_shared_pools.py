"""Warm pools over servers of one store: how they are divided, and who stocks what when servers come and go."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from waiting import until

from rock_env.server.capacity.pools import PoolFile, PoolWish
from rock_env.server.replicas.member import Replica
from rock_env.server.replicas.pools import SharedPools, part_of
from rock_env.server.replicas.seats import Seat
from rock_env.spec import SandboxSpec
from rock_env.store.base import Overtaken
from rock_env.store.postgres.members import Member
from rock_env.store.postgres.records import PostgresStore
from rock_env.store.postgres.schema import POOLS
from rock_env.store.postgres.settings import StoredSettings

SPEC = SandboxSpec()


def stored(store: PostgresStore) -> StoredSettings[bytes]:
    return StoredSettings(store, "rock_pools", "key", ("record",), channel=POOLS)


def member(name: str, *, draining: bool = False) -> Member:
    return Member(name, name[0], f"unix:///{name}", draining, 10.0, "", f"e{name}")


def test_a_pool_is_divided_without_rest() -> None:
    members = [member(name) for name in ("a1", "a2", "b1")]
    for size in (0, 1, 2, 3, 7, 9):
        parts = [part_of(PoolWish(SPEC, size), each.id, members) for each in members]
        assert sum(parts) == size
        assert max(parts) - min(parts) <= 1


def test_only_who_can_make_the_boxes_has_a_part() -> None:
    members = [member("a1"), member("a2", draining=True), member("b1"), member("b2")]
    assert [part_of(PoolWish(SPEC, 4, node="b"), it.id, members) for it in members] == [0, 0, 2, 2]
    assert [part_of(PoolWish(SPEC, 6), it.id, members) for it in members] == [2, 0, 2, 2]
    assert part_of(PoolWish(SPEC, 6), "c1", members) == 0


class Server:
    """A member, and what it was told to stock."""

    def __init__(self, pools: SharedPools, replica: Replica) -> None:
        self.pools, self.replica = pools, replica
        self.stock: dict[bytes, int] = {}
        self.told = 0
        self.broken = False
        pools.begin(self.keep)

    def keep(self, wish: PoolWish, size: int) -> bool:
        self.told += 1
        if self.broken:
            return False
        self.stock[wish.key] = size
        return True


@pytest.fixture
async def store(new_database: Callable[[], str]) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(new_database()) as opened:
        yield opened


async def joined(stack: AsyncExitStack, store: PostgresStore, folder: Path, name: str) -> Server:
    seat = Seat(
        own_id=f"{name}:{name}",
        node=name,
        folder="",
        address=f"unix://{folder}/{name}",
        witnesses=folder,
        lease_s=600,
    )
    replica = await stack.enter_async_context(Replica.joined(store, seat))
    return Server(await stack.enter_async_context(SharedPools(store, replica)), replica)


async def test_servers_stock_their_parts_as_others_come_and_go(store: PostgresStore, tmp_path: Path) -> None:
    wish = PoolWish(SPEC, 5)
    async with AsyncExitStack() as stack:
        first = await joined(stack, store, tmp_path, "a")
        await first.pools.set(wish)
        assert first.stock == {wish.key: 5}
        async with AsyncExitStack() as other:
            second = await joined(other, store, tmp_path, "b")
            await until(lambda: (first.stock, second.stock) == ({wish.key: 3}, {wish.key: 2}))
            await second.pools.set(msgspec.structs.replace(wish, size=2))
            await until(lambda: (first.stock, second.stock) == ({wish.key: 1}, {wish.key: 1}))
        await until(lambda: first.stock == {wish.key: 2})
        told = first.told
        async with AsyncExitStack() as again:  # an image of another node's is not for it
            third = await joined(again, store, tmp_path, "c")
            of_a = PoolWish(msgspec.structs.replace(wish).spec, 3, node="a")
            await third.pools.set(of_a)
            await until(lambda: first.stock.get(of_a.key) == 3)
            assert of_a.key not in third.stock
        await until(lambda: first.stock[wish.key] == 2)
        assert first.told > told
        await first.pools.set(msgspec.structs.replace(wish, size=0))
        assert first.stock == {wish.key: 0, of_a.key: 3}
        assert list(await stored(store).all()) == [of_a.key]


async def test_nothing_is_stocked_anew_where_nothing_changed(store: PostgresStore, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        first = await joined(stack, store, tmp_path, "a")
        await first.pools.set(PoolWish(SPEC, 5))
        told = first.told
        await first.pools.set(PoolWish(SPEC, 5))
        await first.replica.members.drain("nobody:1")
        assert first.told == told


async def test_what_could_not_be_stocked_is_tried_again(store: PostgresStore, tmp_path: Path) -> None:
    wish = PoolWish(SPEC, 5)
    async with AsyncExitStack() as stack:
        first = await joined(stack, store, tmp_path, "a")
        first.broken = True
        await first.pools.set(wish)
        assert first.stock == {}
        first.broken = False
        await first.pools.set(wish)
        assert first.stock == {wish.key: 5}
        first.broken = True
        await first.pools.set(msgspec.structs.replace(wish, size=0))
        first.broken = False
        await first.pools.set(PoolWish(SPEC, 1, node="elsewhere"))
        assert first.stock == {wish.key: 0}


async def test_a_folder_hands_its_pools_over_once(store: PostgresStore, tmp_path: Path) -> None:
    own = PoolFile(tmp_path / "pools.json")
    smaller = PoolWish(SandboxSpec(lifetime_s=60, workdir="/tmp"), 1)
    own.set(PoolWish(SPEC, 5))
    own.set(smaller)
    async with AsyncExitStack() as stack:
        first = await joined(stack, store, tmp_path, "a")
        await first.pools.set(PoolWish(SPEC, 2))
        await first.pools.take_over(own.wishes.values())
        own.forget()
        await until(lambda: first.stock == {PoolWish(SPEC, 2).key: 2, smaller.key: 1})
    assert PoolFile(tmp_path / "pools.json").wishes == {}


def test_a_file_of_a_release_before_is_read(tmp_path: Path) -> None:
    (tmp_path / "pools.json").write_bytes(msgspec.json.encode([{"spec": SPEC, "size": 3}]))
    assert list(PoolFile(tmp_path / "pools.json").wishes.values()) == [PoolWish(SPEC, 3)]


async def test_a_setting_is_written_over_what_was_read_alone(store: PostgresStore) -> None:
    """Asked for again, since its answer was lost, it does not undo what somebody set meanwhile."""
    pools, key = stored(store), b"k"
    await pools.change(key, None, (b"1",))
    await pools.change(key, None, (b"1",))  # the same once more
    await pools.change(key, (b"1",), (b"2",))
    for before, after in ((None, (b"1",)), ((b"1",), (b"3",)), ((b"1",), None)):
        with pytest.raises(Overtaken, match="set by somebody else"):
            await pools.change(key, before, after)
    assert await pools.all() == {key: (b"2",)}
    await pools.fill({key: (b"4",), b"other": (b"5",)})
    assert await pools.all() == {key: (b"2",), b"other": (b"5",)}
    await pools.change(key, (b"2",), None)
    await pools.change(key, (b"2",), None)
    assert await pools.get(key) is None
