"""The registry on the real Docker engine: builds, digests, pins, tenants, eviction; over a real socket."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import secrets
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx
import pytest
from docker_engine import skip_without, why_no_engine
from waiting import until

from rock_env.backends.docker.engine import Engine
from rock_env.backends.docker.layers import DockerLayers
from rock_env.backends.process.backend import ProcessBackend
from rock_env.client.build_context import packed
from rock_env.client.credentials import Credentials
from rock_env.client.registry import RegistryClient
from rock_env.errors import FailedPrecondition, InvalidArgument, NotFound, ResourceExhausted
from rock_env.proto.v1 import registry_pb2 as pb
from rock_env.proto.v1 import registry_pb2_grpc
from rock_env.security.auth import act_for
from rock_env.server.images.cache import ImageCache
from rock_env.server.images.records import ImageRecords
from rock_env.server.images.registry import Registry, RegistryOptions
from rock_env.server.sandboxes.core import SandboxCore
from rock_env.server.services.registry import add_registry_service
from rock_env.spec import SandboxSpec
from rock_env.store.sqlite.records import SqliteStore

BASE = "busybox:1.35"


@pytest.fixture(scope="module", autouse=True)
def base() -> None:
    if problem := why_no_engine():
        pytest.skip(f"no Docker here: {problem}")
    skip_without(BASE)


@dataclass
class Place:
    """A registry that serves on a socket, and what is behind it."""

    registry: Registry
    cache: ImageCache
    address: str
    mark: str
    free: list[int]
    """What the engine's disk is said to have free."""
    used: set[str]


class _Tenant(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Stands for the interceptor that checks tokens: the caller says whose it is."""

    async def intercept_service(self, continuation, details):  # type: ignore[no-untyped-def]
        act_for(dict(details.invocation_metadata or ()).get("authorization", "Bearer ").partition(" ")[2])
        return await continuation(details)


@asynccontextmanager
async def serving(folder: Path, mark: str) -> AsyncIterator[Place]:
    engine, free, used = Engine(), [1 << 50], set[str]()

    async def in_use() -> set[str]:
        return used

    backend = ProcessBackend(root=folder, isolation="none")
    registry = Registry(
        engine, ImageRecords(folder / "images.json"), RegistryOptions(max_context_bytes=8 << 20, spool=folder)
    )
    cache = ImageCache(registry, in_use=in_use, min_free_bytes=1 << 30, free_bytes=lambda _: free[0])
    server = grpc.aio.server(interceptors=[_Tenant()])
    address = f"unix://{folder}/socket"
    async with registry, await SqliteStore.open() as store, SandboxCore(backend, store) as core:
        add_registry_service(server, registry, core)
        server.add_insecure_port(address)
        await server.start()
        yield Place(registry, cache, address, mark, free, used)
        await server.stop(None)
    await backend.close()
    await engine.close()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    mark = secrets.token_hex(6)
    (tmp_path / "server").mkdir()
    async with serving(tmp_path / "server", mark) as made:
        yield made
        for record in await made.registry.records.all():
            if record.built:
                await made.registry.remove(record.image_id)


def client(place: Place, tenant: str = "blue") -> RegistryClient:
    return RegistryClient(place.address, credentials=Credentials(token=tenant))


@pytest.fixture
def folder(tmp_path: Path, place: Place) -> Path:
    """A folder whose build differs from every other test's."""
    made = tmp_path / "context"
    made.mkdir()
    (made / "Dockerfile").write_text(f"FROM {BASE}\nRUN echo built {place.mark}\nCOPY . /data\n")
    (made / "a.txt").write_text("a")
    return made


async def files_in(place: Place, image_id: str) -> set[str]:
    """Return the names in /data of an image, from a container that never runs."""
    engine = place.registry.engine
    made = await engine.call(
        "POST", "/containers/create", body={"Image": image_id, "Labels": {"rock.test": place.mark}}
    )
    try:
        async with httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(engine.socket)), timeout=60
        ) as http:
            reply = await http.get(f"http://docker/containers/{made['Id']}/archive", params={"path": "/data"})
        with tarfile.open(fileobj=io.BytesIO(reply.content)) as tar:
            return {name.partition("/")[2] for name in tar.getnames()} - {""}
    finally:
        await engine.remove(made["Id"])


async def test_a_folder_is_built_once_and_its_log_streamed(place: Place, folder: Path) -> None:
    (folder / ".dockerignore").write_text("# comment\n*.log\nsecret\n!kept.log\n")
    for name in ("x.log", "kept.log", "secret"):
        (folder / name).write_text(name)
    log, sent = bytearray(), []
    async with client(place) as registry:
        image = await registry.register(
            folder, "tools:v1", on_log=log.extend, on_upload=lambda *counts: sent.append(counts)
        )
        assert image.built_now
        assert f"built {place.mark}".encode() in log
        assert b"Step 1/" in log
        assert sent[-1][0] == sent[-1][1] > 0
        assert await files_in(place, image.image_id) == {"a.txt", "kept.log", "Dockerfile", ".dockerignore"}
        os.utime(folder / "a.txt", (1, 1))  # another machine, another time: the same folder
        again = await registry.register(folder, "tools:v1", on_log=log.extend)
        assert (again.image_id, again.context_digest, again.built_now) == (
            image.image_id,
            image.context_digest,
            False,
        )
        other = await registry.register(folder, "other-name")
        assert (other.image_id, other.built_now) == (image.image_id, False)
        assert [found.name for found in await registry.list()] == ["other-name", "tools:v1"]
        assert (await registry.get("tools:v1")).image_id == image.image_id
        (folder / "a.txt").write_text("b")
        changed = await registry.register(folder, "tools:v1")
        assert changed.image_id != image.image_id
        assert changed.built_now


async def test_a_sandbox_is_pinned_to_the_content_it_was_created_with(place: Place, folder: Path) -> None:
    async with client(place) as registry:
        first = await registry.register(folder, "tools")
        pinned = await place.registry.pin("blue", SandboxSpec(image="tools"))
        assert pinned.image == first.image_id
        (folder / "b.txt").write_text("b")
        await registry.register(folder, "tools")
        assert (await place.registry.pin("blue", pinned)).image == first.image_id, "a retag changes nothing"
    plain = SandboxSpec()
    assert await place.registry.pin("blue", plain) is plain
    base = await place.registry.pin("blue", SandboxSpec(image=BASE))
    assert base.image.startswith("sha256:")
    with pytest.raises(InvalidArgument, match="no image 'nowhere:1'"):
        await place.registry.pin("blue", SandboxSpec(image="nowhere:1"))


async def test_tenants_neither_see_nor_use_each_others_images(place: Place, folder: Path) -> None:
    async with client(place) as blue, client(place, "red") as red:
        image = await blue.register(folder, "tools")
        assert await red.list() == []
        for ask in (red.get, red.delete):
            with pytest.raises(NotFound, match="no registered image 'tools'; there are: none"):
                await ask("tools")
        for reference in (image.image_id, image.image_id.removeprefix("sha256:")[:20]):
            with pytest.raises(InvalidArgument, match="no image"):
                await place.registry.pin("red", SandboxSpec(image=reference))
            with pytest.raises(InvalidArgument, match="no image"):
                await red.adopt(reference, "stolen")
        own = await red.register(folder, "tools")
        assert own.built_now, "what another tenant built is not told of"
        await blue.delete("tools")
        assert (await place.registry.pin("red", SandboxSpec(image="tools"))).image == own.image_id
        assert await place.registry.engine.image(own.image_id), "and stays while it is somebody's"


async def test_a_dockerfile_names_no_image_of_another_tenant(
    place: Place, folder: Path, tmp_path: Path
) -> None:
    theft = tmp_path / "theft"
    theft.mkdir()
    async with client(place) as blue, client(place, "red") as red:
        (folder / "secret").write_text("blue's")
        image = await blue.register(folder, "tools")
        whole = image.image_id.removeprefix("sha256:")
        tag = f"rock-image:{whole[:32]}"
        for reference in (image.image_id, whole, whole[:12], tag):
            for text in (
                f"FROM {reference}\nRUN echo {place.mark}",
                f"FROM {BASE}\nCOPY --from={reference} /data /stolen",
                f"FROM {BASE}\nONBUILD COPY --from={reference} /data /stolen",
                f"ARG IT={reference}\nFROM $IT",
            ):
                (theft / "Dockerfile").write_text(text)
                with pytest.raises(InvalidArgument, match="which the Docker engine has not"):
                    await red.register(theft, "stolen")
        (theft / "Dockerfile").write_text(
            f"FROM {image.image_id} AS mine\nFROM {BASE}\nCOPY --from=mine /data /data"
        )
        own = await blue.register(theft, "copy")
        assert "secret" in await files_in(place, own.image_id)


async def test_nobody_starts_from_a_snapshot_by_the_name_or_id_of_its_image(place: Place) -> None:
    engine, snapshot = place.registry.engine, secrets.token_hex(6)
    layers = DockerLayers(engine, "another-server")
    made = await engine.call(
        "POST", "/containers/create", body={"Image": BASE, "Cmd": ["sleep", "60"], "StopSignal": "SIGKILL"}
    )
    try:
        await engine.call("POST", f"/containers/{made['Id']}/start")
        container = await engine.inspect(made["Id"])
        assert container is not None
        await layers.commit(container, snapshot)
        name = f"rock-snap:another-server-{snapshot}"
        image_id = str((await engine.image(name))["Id"])
        for reference in (name, image_id, image_id.removeprefix("sha256:"), image_id[:30], image_id[7:20]):
            with pytest.raises(InvalidArgument, match="no image"):
                await place.registry.pin("blue", SandboxSpec(image=reference))
            with pytest.raises(InvalidArgument, match="no image"):
                await place.registry.adopt("blue", "stolen", reference)
    finally:
        await engine.call("DELETE", f"/containers/{made['Id']}", params={"force": "1"})
        await layers.delete(snapshot)


async def test_an_image_is_named_by_its_tag_or_its_whole_id(place: Place) -> None:
    """Never by the beginning of an id: whose image that would be is a guess."""
    whole = (await place.registry.pin("blue", SandboxSpec(image=BASE))).image
    for reference in (whole, whole.removeprefix("sha256:")):
        assert (await place.registry.pin("blue", SandboxSpec(image=reference))).image == whole
    for guess in (whole[:-1], whole[:19], whole[7:19]):
        with pytest.raises(InvalidArgument, match="no image"):
            await place.registry.pin("blue", SandboxSpec(image=guess))


async def test_a_build_that_fails_says_where_and_why(place: Place, folder: Path) -> None:
    (folder / "Dockerfile").write_text(f"FROM {BASE}\nRUN echo so far {place.mark}\nRUN echo boom; exit 7\n")
    async with client(place) as registry:
        with pytest.raises(InvalidArgument) as caught:
            await registry.register(folder, "broken")
        said = str(caught.value)
        assert ": RUN echo boom; exit 7`" in said
        assert "returned a non-zero code: 7" in said
        assert " boom " in said, "the end of what its commands wrote, on the message's one line"
        with pytest.raises(NotFound):
            await registry.get("broken")
        with pytest.raises(InvalidArgument, match="bad image name 'Broken'"):
            await registry.register(folder, "Broken")
        (folder / "Dockerfile").write_text("FORM nothing\n")
        with pytest.raises(InvalidArgument, match="unknown instruction 'FORM'"):
            await registry.register(folder, "broken")


async def raw(place: Place, *requests: pb.RegisterRequest) -> grpc.aio.AioRpcError:
    async with grpc.aio.insecure_channel(place.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in registry_pb2_grpc.RegistryServiceStub(channel).Register(iter(requests)):
                pass
    return caught.value


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


DOCKERFILE = (member("Dockerfile"), b"FROM scratch\n")


@pytest.mark.parametrize(
    ("tar", "said"),
    [
        (b"", "not a complete, uncompressed tar"),
        (b"\xff" * 5000, "not a complete, uncompressed tar"),
        (archive(DOCKERFILE, (member("big"), bytes(20_000)))[:12_000], "not a complete, uncompressed tar"),
        (archive((member("a.txt"), b"")), "has no 'Dockerfile'; at its top it has: a.txt"),
        (archive(DOCKERFILE, (member("../../etc/x"), b"")), "leads out of it"),
        (archive(DOCKERFILE, (member("/etc/x"), b"")), "leads out of it"),
        (archive(DOCKERFILE, (member("x", tarfile.LNKTYPE, "/etc/shadow"), b"")), "leads out of it"),
        (archive(DOCKERFILE, (member("x", tarfile.CHRTYPE), b"")), "no file, folder or link"),
        (bytes(9 << 20), "larger than 8388608 bytes"),
    ],
    ids=["empty", "noise", "cut", "no-dockerfile", "climbs", "absolute", "link-out", "device", "too-large"],
)
async def test_what_is_no_context_is_refused_with_one_clear_error(
    place: Place, tar: bytes, said: str
) -> None:
    start = pb.RegisterRequest(start=pb.RegisterStart(name="tools"))
    parts = [pb.RegisterRequest(tar=tar[at : at + (1 << 20)]) for at in range(0, len(tar), 1 << 20)]
    error = await raw(place, start, *parts)
    assert error.code().name == "INVALID_ARGUMENT"
    assert said in (error.details() or "")
    assert "first message" in (await raw(place, pb.RegisterRequest(tar=tar[:10]))).details()


def test_a_folder_without_a_dockerfile_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="has no Dockerfile"):
        packed(tmp_path)
    with pytest.raises(InvalidArgument, match="is no folder"):
        packed(tmp_path / "nowhere")


def tar_of(folder: Path) -> bytes:
    with packed(folder) as file:
        return file.read()


async def test_a_build_goes_on_without_its_caller_and_its_log_is_read_on(place: Place, folder: Path) -> None:
    (folder / "Dockerfile").write_text(f"FROM {BASE}\nRUN echo one {place.mark}; sleep 1; echo two\n")
    metadata = Credentials(token="blue").metadata()
    async with grpc.aio.insecure_channel(place.address) as channel:
        stub = registry_pb2_grpc.RegistryServiceStub(channel)
        tar = tar_of(folder)
        requests = [pb.RegisterRequest(start=pb.RegisterStart(name="slow")), pb.RegisterRequest(tar=tar)]
        call = stub.Register(iter(requests), metadata=metadata)
        seen, build_id, whole = 0, "", hashlib.sha256()
        async for event in call:
            build_id = event.build_id
            if event.WhichOneof("kind") == "log":
                seen = event.log.offset + len(event.log.data)
                whole.update(event.log.data)
                if b"one" in event.log.data:
                    break
        call.cancel()
        resumed = stub.WatchBuild(pb.WatchBuildRequest(build_id=build_id, offset=seen), metadata=metadata)
        image = None
        async for event in resumed:
            if event.WhichOneof("kind") == "log":
                assert event.log.offset == seen, "nothing is missed, nothing comes twice"
                seen += len(event.log.data)
                whole.update(event.log.data)
            else:
                image = event.image
        assert image is not None
        build = place.registry.build("blue", build_id)
        assert whole.hexdigest() == hashlib.sha256(bytes(build._log)).hexdigest()
        with pytest.raises(grpc.aio.AioRpcError, match="no build"):
            await stub.WatchBuild(pb.WatchBuildRequest(build_id=build_id)).read()


async def test_what_a_build_writes_makes_nobodys_image_its_own(place: Place, folder: Path) -> None:
    """Its commands write to the log that its layers are read from: a base image would be its tenant's from then on."""
    base = str((await place.registry.engine.image(BASE))["Id"]).removeprefix("sha256:")[:12]
    (folder / "Dockerfile").write_text(f"FROM {BASE}\nRUN echo {place.mark} && echo ' ---> {base}'; exit 1\n")
    async with client(place) as registry, client(place, "red") as other:
        with pytest.raises(InvalidArgument):
            await registry.register(folder, "taken")
        assert (await other.adopt(BASE, "base")).image_id.startswith(f"sha256:{base}")


async def test_builds_of_a_tenant_are_bounded(
    place: Place, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rock_env.server.images.registry.MOST_BUILDS", 0)
    async with client(place) as registry:
        with pytest.raises(ResourceExhausted, match="0 builds run or wait"):
            await registry.register(folder, "tools")


async def test_what_builds_leave_is_known_and_goes_when_the_disk_is_full(place: Place, folder: Path) -> None:
    stages = (
        f"FROM {BASE} AS first\nRUN echo one >/a{place.mark}\nFROM {BASE}\nRUN echo two >/b{place.mark}\n"
    )
    async with client(place) as registry:
        (folder / "Dockerfile").write_text(stages)
        image = await registry.register(folder, "staged")
        (folder / "Dockerfile").write_text(f"{stages}RUN echo three >/c{place.mark}\nRUN exit 1\n")
        with pytest.raises(InvalidArgument):
            await registry.register(folder, "broken")
        assert [found.name for found in await registry.list()] == ["staged"]
    records = place.registry.records
    assert isinstance(records, ImageRecords)
    await until(lambda: len([record for record in records if not record.name]) == 2)
    left = {record.image_id for record in records if not record.name}
    place.free[0] = 0
    done = await place.cache.make_room()
    assert {found.image_id for found in done.removed} == left | {image.image_id}
    for image_id in left:
        with pytest.raises(InvalidArgument, match="no image"):
            await place.registry.engine.image(image_id)


async def test_two_callers_with_one_folder_share_one_build(place: Place, folder: Path) -> None:
    async with client(place) as registry:
        first, second = await asyncio.gather(*(registry.register(folder, "tools") for _ in range(2)))
    assert first.image_id == second.image_id
    assert [first.built_now, second.built_now].count(True) == 1


async def test_records_survive_the_server(place: Place, folder: Path, tmp_path: Path) -> None:
    async with client(place) as registry:
        image = await registry.register(folder, "tools")
        adopted = await registry.adopt(BASE, "base")
    held = ImageRecords(tmp_path / "server" / "images.json")
    assert [(record.name, record.image_id) for record in await held.of("blue")] == [
        ("base", adopted.image_id),
        ("tools", image.image_id),
    ]
    (tmp_path / "server" / "images.json").write_text("{")
    with pytest.raises(FailedPrecondition, match="does not hold the records"):
        ImageRecords(tmp_path / "server" / "images.json")


async def build_three(place: Place, folder: Path) -> list[str]:
    ids = []
    async with client(place) as registry:
        for number in range(3):
            (folder / "number").write_text(str(number))
            ids.append((await registry.register(folder, f"image-{number}")).image_id)
    return ids


async def test_the_least_recently_used_goes_first_when_the_disk_is_full(place: Place, folder: Path) -> None:
    ids = await build_three(place, folder)
    await place.registry.pin("blue", SandboxSpec(image="image-0"))  # now the last used
    assert (await place.cache.make_room()).removed == (), "there is room"
    place.free[0] = (1 << 30) - 1
    dry = await place.cache.collect(dry_run=True)
    assert [image.image_id for image in dry.removed] == [ids[1]]
    assert dry.removed[0].names == ("image-1",)
    assert await place.registry.engine.image(ids[1]), "a dry run removes nothing"
    done = await place.cache.make_room()
    assert {image.image_id for image in done.removed} == set(ids), "the disk stayed full"
    with pytest.raises(FailedPrecondition, match="Register its folder again"):
        await place.registry.pin("blue", SandboxSpec(image="image-2"))
    async with client(place) as registry:
        assert (await registry.get("image-2")).evicted
        place.free[0] = 1 << 50
        again = await registry.register(folder, "image-2")
        assert (again.built_now, again.evicted) == (True, False)
    assert (await place.registry.pin("blue", SandboxSpec(image="image-2"))).image == again.image_id


async def test_what_is_in_use_is_never_evicted(place: Place, folder: Path) -> None:
    ids = await build_three(place, folder)
    engine = place.registry.engine
    container = await engine.call(
        "POST", "/containers/create", body={"Image": ids[0], "Labels": {"rock.test": place.mark}}
    )
    committed = ""
    try:
        made = await engine.call("POST", "/commit", params={"container": container["Id"]}, body={})
        committed = made["Id"]
        place.used.add(ids[1])
        async with client(place) as registry:
            await registry.adopt(BASE, "base")
        place.free[0] = 0
        done = await place.cache.make_room()
        assert [image.image_id for image in done.removed] == [ids[2]]
        reasons = {image.names[0]: image.kept_because for image in done.kept}
        assert reasons["image-1"] == "a sandbox or a pool uses it"
        assert reasons["image-0"] != ""
        assert reasons["base"] == "it was taken over by name, not built here"
        await engine.remove(container["Id"])
        done = await place.cache.make_room()
        assert done.removed == (), "a snapshot builds upon image-0"
        assert {image.kept_because for image in done.kept if image.names == ("image-0",)} == {
            "another image or snapshot builds upon it"
        }
    finally:
        await engine.remove(container["Id"])
        if committed:
            await engine.call("DELETE", f"/images/{committed}")
