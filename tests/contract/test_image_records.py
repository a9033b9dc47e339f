"""The records of images: what holds for the file of one server, for a shared store, and between two servers of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from rock_env.errors import InfraError
from rock_env.server.images.records import ImageRecord, ImageRecords, RecordKeeper
from rock_env.server.replicas.images import SharedImages
from rock_env.store.postgres.records import PostgresStore


@pytest.fixture
async def store(new_database: Callable[[], str]) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(new_database()) as opened:
        yield opened


@pytest.fixture(params=["file", "store"])
def keeper(request: pytest.FixtureRequest, tmp_path: Path) -> RecordKeeper:
    if request.param == "file":
        return ImageRecords(tmp_path / "images.json")
    return SharedImages(request.getfixturevalue("store"), node="a", maker="e00000001")


def built(keeper: RecordKeeper, name: str, image: str, tenant: str = "blue", **fields: object) -> ImageRecord:
    record = ImageRecord(
        tenant=tenant,
        name=name,
        image_id=f"sha256:{image}",
        context_digest=f"context of {image}",
        used_at=100.0,
        node=keeper.node,
    )
    return msgspec.structs.replace(record, **fields)


async def kept(keeper: RecordKeeper) -> set[tuple[str, str, str]]:
    return {(it.tenant, it.name, it.image_id.removeprefix("sha256:")) for it in await keeper.all()}


async def test_a_name_is_its_tenants(keeper: RecordKeeper) -> None:
    record = built(keeper, "tools", "1")
    await keeper.put(record)
    await keeper.put(built(keeper, "tools", "2", "red"))
    await keeper.put(built(keeper, "a", "3"))
    assert await keeper.get("blue", "tools") == record
    assert await keeper.get("green", "tools") is None
    assert await keeper.get("blue", "") is None
    assert [it.name for it in await keeper.of("blue")] == ["a", "tools"]
    assert [it.tenant for it in await keeper.with_image("sha256:2")] == ["red"]


async def test_an_image_that_loses_its_name_stays_known(keeper: RecordKeeper) -> None:
    await keeper.put(built(keeper, "tools", "1"))
    await keeper.put(built(keeper, "tools", "2"))
    await keeper.put(built(keeper, "tools", "2"))
    assert await kept(keeper) == {("blue", "", "1"), ("blue", "tools", "2")}
    await keeper.unname(built(keeper, "tools", "2"))
    assert await kept(keeper) == {("blue", "", "1"), ("blue", "", "2")}
    assert await keeper.of("blue") == []
    again = await keeper.built_from("blue", "context of 1")
    assert again is not None
    assert again.image_id == "sha256:1"
    assert await keeper.built_from("red", "context of 1") is None


async def test_an_image_that_was_not_built_is_forgotten_with_its_name(keeper: RecordKeeper) -> None:
    adopted = built(keeper, "base", "1", context_digest="")
    await keeper.put(adopted)
    await keeper.put(built(keeper, "base", "2"))
    assert await kept(keeper) == {("blue", "base", "2")}
    await keeper.put(built(keeper, "", "3", context_digest=""))
    assert await kept(keeper) == {("blue", "base", "2")}


async def test_what_was_evicted_keeps_its_name_alone(keeper: RecordKeeper) -> None:
    for name, image in (("tools", "1"), ("more", "1"), ("tools", "2"), ("tools", "1")):
        await keeper.put(built(keeper, name, image))
    await keeper.gone("sha256:1", evicted=True)
    named = {it.name: it.evicted for it in await keeper.all()}
    assert named == {"tools": True, "more": True, "": False}
    assert await keeper.built_from("blue", "context of 1") is None
    await keeper.gone("sha256:2", evicted=True)
    assert await kept(keeper) == {("blue", "tools", "1"), ("blue", "more", "1")}
    await keeper.gone("sha256:1", evicted=False)
    assert await kept(keeper) == set()


async def test_the_last_use_is_noted(keeper: RecordKeeper) -> None:
    record = built(keeper, "tools", "1")
    await keeper.put(record)
    await keeper.touch(record, 200.0)
    found = await keeper.get("blue", "tools")
    assert found is not None
    assert found.used_at == 200.0


@pytest.fixture
def pair(store: PostgresStore) -> tuple[SharedImages, SharedImages]:
    return (
        SharedImages(store, node="a", maker="e00000001"),
        SharedImages(store, node="b", maker="e00000002"),
    )


async def test_nodes_share_names_and_keep_their_images(pair: tuple[SharedImages, SharedImages]) -> None:
    first, second = pair
    await first.put(built(first, "tools", "1"))
    found = await second.get("blue", "tools")
    assert found is not None
    assert found.node == "a"
    assert await second.all() == []
    assert await second.built_from("blue", "context of 1") is None
    await second.put(built(second, "tools", "1"))
    assert [(it.name, it.node) for it in await first.all()] == [("", "a")]
    assert [(it.name, it.node) for it in await second.of("blue")] == [("tools", "b")]
    await second.gone("sha256:1", evicted=False)
    assert [(it.name, it.node) for it in await first.with_image("sha256:1")] == [("", "a")]


async def test_servers_that_take_one_name_at_once_forget_no_image(
    pair: tuple[SharedImages, SharedImages],
) -> None:
    records = [built(pair[n % 2], "tools", str(n)) for n in range(20)]
    await asyncio.gather(*(pair[n % 2].put(record) for n, record in enumerate(records)))
    known = [*await pair[0].all(), *await pair[1].all()]
    assert {it.image_id for it in known} == {record.image_id for record in records}
    assert len([it for it in known if it.name]) == 1


async def test_who_was_slower_changes_nothing_of_the_new_image(
    pair: tuple[SharedImages, SharedImages],
) -> None:
    first, second = pair
    old = built(first, "tools", "1")
    await first.put(old)
    await second.put(built(second, "tools", "2"))
    await first.unname(old)
    await first.touch(old, 1000.0)
    (named,) = await first.of("blue")
    assert (named.image_id, named.used_at) == ("sha256:2", 100.0)


async def test_a_use_that_is_noted_late_does_not_bring_an_evicted_image_back(
    pair: tuple[SharedImages, SharedImages],
) -> None:
    here = pair[0]
    await here.put(record := built(here, "tools", "1"))
    await here.gone(record.image_id, evicted=True)
    await here.touch(record, 500.0)  # of one who read the record before
    now = await here.get("blue", "tools")
    assert now == msgspec.structs.replace(record, used_at=500.0, evicted=True)


async def test_uses_within_a_minute_are_one_write(pair: tuple[SharedImages, SharedImages]) -> None:
    record = built(pair[0], "tools", "1")
    await pair[0].put(record)
    await pair[0].touch(record, 159.0)
    (named,) = await pair[0].of("blue")
    assert named.used_at == 100.0


async def test_a_folder_hands_its_names_over_once(
    pair: tuple[SharedImages, SharedImages], tmp_path: Path
) -> None:
    own = ImageRecords(tmp_path / "images.json")
    for name, image in (("tools", "1"), ("tools", "2"), ("base", "3")):
        await own.put(built(own, name, image))
    await pair[1].put(built(pair[1], "base", "4"))
    await pair[0].take_over(own)
    await own.forget()
    assert {(it.name, it.image_id, it.node) for it in await pair[0].of("blue")} == {
        ("tools", "sha256:2", "a"),
        ("base", "sha256:4", "b"),
    }
    assert await kept(pair[0]) == {("blue", "tools", "2"), ("blue", "", "1"), ("blue", "", "3")}
    assert list(ImageRecords(tmp_path / "images.json")) == []


async def test_a_record_that_cannot_be_read_is_the_servers_fault(
    pair: tuple[SharedImages, SharedImages], store: PostgresStore
) -> None:
    await pair[0].put(built(pair[0], "tools", "1"))
    await store.fetch("UPDATE rock_images SET record = '{' RETURNING 1")
    with pytest.raises(InfraError, match="cannot read"):
        await pair[1].of("blue")
