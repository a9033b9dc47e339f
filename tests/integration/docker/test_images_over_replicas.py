"""Images by name over two servers of one store, each with a node of its own: whichever is asked, the answer is the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from docker_engine import BUSYBOX, skip_without
from integration.replica_fleet import Fleet, Server, refusal, running_fleet

from rock_env.client.build_context import packed
from rock_env.client.registry import RegistryClient
from rock_env.errors import NotFound, RockError, Unavailable
from rock_env.proto.v1 import registry_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.registry_pb2_grpc import RegistryServiceStub
from rock_env.spec import SandboxSpec
from rock_env.store.open import open_store
from rock_env.wire.sandboxes import spec_message

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def image(engine: None) -> None:
    skip_without(BUSYBOX)


@pytest.fixture
async def fleet(new_database: Callable[[], str]) -> AsyncIterator[Fleet]:
    async with running_fleet(new_database()) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "image"
    made.mkdir()
    (made / "Dockerfile").write_text(f"FROM {BUSYBOX}\nRUN echo built {tmp_path}\n")
    return made


async def on_node(fleet: Fleet, node: str) -> Server:
    own = fleet.folder / node
    return await fleet.start("--insecure", f"--state={own}", f"--node={node}", "--backend=docker")


async def node_of(fleet: Fleet, server: Server, image: str) -> str:
    spec = spec_message(SandboxSpec(image=image))
    made = await server.boxes.Create(pb.CreateSandboxRequest(spec=spec), timeout=60)
    async with await open_store(fleet.url) as store:
        record = await store.get(made.id)
    assert record is not None
    assert record.state == "RUNNING", record
    await server.boxes.Delete(pb.DeleteSandboxRequest(id=made.id), timeout=60)
    return record.node


async def test_an_image_of_one_server_is_known_at_all(fleet: Fleet, folder: Path) -> None:
    first, second = await on_node(fleet, "a"), await on_node(fleet, "b")
    async with RegistryClient(first.address) as here, RegistryClient(second.address) as there:
        image = await here.register(folder, "tools")
        assert [it.image_id for it in await there.list()] == [image.image_id]
        assert (await there.get("tools")).context_digest == image.context_digest
        assert await node_of(fleet, second, "tools") == "a"
        assert await node_of(fleet, first, "tools") == "a"
        group = pb.CreateManyRequest(
            items=[pb.CreateSandboxRequest(spec=spec_message(SandboxSpec(image="tools")))] * 2
        )
        made = (await second.boxes.CreateMany(group, timeout=60)).sandboxes
        assert [it.state for it in made] == [pb.SANDBOX_STATE_RUNNING] * 2
        for it in made:
            await second.boxes.Delete(pb.DeleteSandboxRequest(id=it.id), timeout=60)
        reports = [report async for report in there.validate(SandboxSpec(image="tools"))]
        assert reports
        # Registered at the other server, its folder is built there, and the name means that image from now on.
        assert (await there.register(folder, "tools")).built_now
        assert await node_of(fleet, first, "tools") == "b"
        await here.delete("tools")
        with pytest.raises(NotFound):
            await there.get("tools")


async def test_a_build_is_watched_from_any_server(fleet: Fleet, folder: Path) -> None:
    first, second = await on_node(fleet, "a"), await on_node(fleet, "b")
    here, there = RegistryServiceStub(first.channel), RegistryServiceStub(second.channel)
    with packed(folder, dockerfile="Dockerfile") as archive:
        start = registry_pb2.RegisterRequest(start=registry_pb2.RegisterStart(name="tools"))
        requests = [start, registry_pb2.RegisterRequest(tar=archive.read())]
    events = [event async for event in here.Register(iter(requests))]
    watched = [event async for event in there.WatchBuild(watching(events[0].build_id))]
    assert watched[-1].image.image_id == events[-1].image.image_id
    assert b"built" in b"".join(event.log.data for event in watched)
    unknown = there.WatchBuild(watching("build-e000000000123456789abcdef"))
    assert (await refusal(anext(aiter(unknown))))[0] == "NOT_FOUND"


def watching(build_id: str) -> registry_pb2.WatchBuildRequest:
    return registry_pb2.WatchBuildRequest(build_id=build_id)


async def test_an_image_whose_node_is_gone_is_unavailable(fleet: Fleet, folder: Path) -> None:
    first, second = await on_node(fleet, "a"), await on_node(fleet, "b")
    async with RegistryClient(first.address) as here:
        await here.register(folder, "tools")
    first.process.terminate()
    await first.ended()
    with pytest.raises(RockError) as caught:
        async with RegistryClient(second.address) as there:
            [report async for report in there.validate(SandboxSpec(image="tools"))]
    assert isinstance(caught.value, Unavailable)
    assert "was registered on node 'a'" in str(caught.value)


async def test_names_of_a_folder_come_into_the_store(fleet: Fleet, folder: Path) -> None:
    own = fleet.folder / "a"
    alone = await fleet.start("--insecure", f"--state={own}", f"--store={own}/r.db", "--backend=docker")
    async with RegistryClient(alone.address) as before:
        image = await before.register(folder, "tools")
    alone.process.terminate()
    await alone.ended()
    assert (own / "images.json").exists()
    await on_node(fleet, "a")
    second = await on_node(fleet, "b")
    assert not (own / "images.json").exists()
    async with RegistryClient(second.address) as there:
        assert (await there.get("tools")).image_id == image.image_id
    assert await node_of(fleet, second, "tools") == "a"
