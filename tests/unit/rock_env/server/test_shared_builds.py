"""What the registry of a server with several tenants looks at before it builds, against an engine of the test's own."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from rock_env.backends.docker.engine import Engine
from rock_env.errors import InvalidArgument
from rock_env.server.images.builds import BuildWish
from rock_env.server.images.records import ImageRecord, ImageRecords
from rock_env.server.images.registry import Registry, RegistryOptions

OTHERS = "sha256:" + "ab" * 32
MADE = "sha256:" + "cd" * 32


def described(image_id: str, **config: Any) -> dict[str, Any]:
    return {"Id": image_id, "Architecture": "amd64", "RepoTags": [], "Config": config}


class TalkingEngine:
    """Stands for the engine: `images` it has, `remote` it can pull; `calls` are those it had."""

    def __init__(self) -> None:
        self.images = {
            "base": described("sha256:" + "01" * 32),
            OTHERS: described(OTHERS),
            MADE: described(MADE),
        }
        self.remote: dict[str, dict[str, Any]] = {}
        self.outcome: dict[str, Any] = {"aux": {"ID": MADE}}
        self.calls: list[tuple[str, dict[str, str]]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one call."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if "chunked" in head.lower():
            while size := int(await reader.readline(), 16):
                await reader.readexactly(size + 2)
        target = urlsplit(head.split()[1])
        asked = {name: values[0] for name, values in parse_qs(target.query).items()}
        status, answer = self.answer(unquote(target.path).removeprefix("/v1.41"), asked)
        content = json.dumps(answer).encode() + b"\n"
        writer.write(
            f"HTTP/1.1 {status} x\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n".encode()
        )
        writer.write(content)
        await writer.drain()
        writer.close()

    def answer(self, path: str, asked: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.calls.append((path, asked))
        if path == "/version":
            return 200, {"Arch": "amd64"}
        if path == "/build":
            return 200, self.outcome
        if path == "/images/create":
            if asked["fromImage"].startswith("127."):
                return 500, {"message": "connection refused"}
            found = self.remote.get(asked["fromImage"])
            if found is None:
                return 200, {"error": "manifest unknown"}
            self.images[asked["fromImage"].removesuffix(":latest")] = found
            return 200, {"status": "Pull complete"}
        if path.endswith("/tag"):
            return 201, {}
        name = path.removeprefix("/images/").removesuffix("/json")
        return (200, self.images[name]) if name in self.images else (404, {"message": "no such image"})


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[tuple[TalkingEngine, Engine]]:
    """Yield what the engine will say, and the engine."""
    said = TalkingEngine()
    server = await asyncio.start_unix_server(said.serve, tmp_path / "engine.sock", limit=1 << 20)
    client = Engine(tmp_path / "engine.sock")
    yield said, client
    await client.close()
    server.close()
    await server.wait_closed()


async def build(
    engine: Engine, text: str, *, shared: bool = True, build_args: dict[str, str] | None = None
) -> None:
    """Build a Dockerfile as the tenant blue, where red has built an image. Raise why it is not built."""
    records = ImageRecords()
    await records.put(ImageRecord(tenant="red", name="tools", image_id=OTHERS, context_digest="sha256:00"))
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        file = tarfile.TarInfo("Dockerfile")
        file.size = len(text.encode())
        tar.addfile(file, io.BytesIO(text.encode()))
    async with Registry(engine, records, RegistryOptions(shared=shared)) as registry:
        wish = BuildWish("mine", build_args=build_args or {})
        context = await registry.context("blue")
        await context.write(data.getvalue())
        await context.seal(dockerfile="Dockerfile", build_args=wish.build_args)
        run, _ = await registry.register("blue", wish, context)
        async for _ in run.read(0):
            pass
        if run.error is not None:
            raise run.error


Both = tuple[TalkingEngine, Engine]


@pytest.mark.parametrize("trigger", [f"COPY --from={OTHERS[7:19]} / /", f"COPY --from={OTHERS} / /"])
async def test_what_a_base_image_does_where_it_is_built_upon_is_checked(engine: Both, trigger: str) -> None:
    """An image of the tenant's own registry says it, so no Dockerfile has the line."""
    said, client = engine
    said.images["evil"] = described("sha256:" + "02" * 32, OnBuild=["RUN x", trigger])
    with pytest.raises(InvalidArgument, match=r"names the image .* which the Docker engine has not"):
        await build(client, "FROM evil")
    said.images.pop("evil")
    said.remote["r.example/evil:latest"] = described("sha256:" + "02" * 32, OnBuild=[trigger])
    with pytest.raises(InvalidArgument, match=r"names the image .* which the Docker engine has not"):
        await build(client, "FROM r.example/evil")
    assert "/build" not in [path for path, _ in said.calls]


async def test_what_the_engine_lacks_is_pulled_before_the_build(engine: Both) -> None:
    said, client = engine
    said.remote["debian:12"] = described("sha256:" + "03" * 32)
    await build(client, "FROM debian:12\nFROM base")
    assert [path for path, _ in said.calls if path in ("/images/create", "/build")] == [
        "/images/create",
        "/build",
    ]
    with pytest.raises(InvalidArgument, match="cannot get the image 'nowhere': manifest unknown"):
        await build(client, "FROM nowhere")
    with pytest.raises(InvalidArgument, match=r"cannot get the image '127\.0\.0\.1/x': .*connection refused"):
        await build(client, "FROM 127.0.0.1/x")


@pytest.mark.parametrize(
    "name", ["rock-snap:server-1", "library/rock-image:00", "docker.io/library/rock-snap"]
)
async def test_a_name_that_servers_give_is_not_waited_for(engine: Both, name: str) -> None:
    """It would come to be while an earlier step of the build sleeps."""
    with pytest.raises(InvalidArgument, match="which the Docker engine has not"):
        await build(engine[1], f"FROM base\nRUN sleep 3000\nFROM {name}", shared=False)


async def test_the_engine_downloads_nothing_from_the_servers_network(engine: Both) -> None:
    said, client = engine
    text = "FROM base\nADD http://127.0.0.1:8080/secret /x"
    with pytest.raises(InvalidArgument, match=r"network\. Use COPY"):
        await build(client, text)
    await build(client, text, shared=False)
    said.images["fetches"] = described("sha256:" + "04" * 32, OnBuild=["ADD http://10.0.0.1/ /x"])
    with pytest.raises(InvalidArgument, match="'fetches' adds"):
        await build(client, "FROM fetches")


async def test_an_image_is_not_fetched_anew_for_another_platform(engine: Both) -> None:
    said, client = engine
    for own in ("linux/amd64", "linux/x86_64"):
        await build(client, f"FROM --platform={own} base")
    with pytest.raises(InvalidArgument, match="platform 'linux/arm64', and this engine has amd64"):
        await build(client, "FROM --platform=linux/arm64 base")
    said.images["base"]["Architecture"] = "arm64"
    with pytest.raises(InvalidArgument, match="has the image 'base' for 'arm64'"):
        await build(client, "FROM --platform=linux/amd64 base")
    await build(client, "FROM base")


async def test_a_build_through_a_proxy_takes_no_step_from_the_cache(engine: Both) -> None:
    """To the cache a step of another proxy is the same one, so its files could be another tenant's choice."""
    said, client = engine
    for build_args, shared in (
        ({"no_proxy": "x"}, True),
        ({"PROXY": "x"}, True),
        ({"HTTP_PROXY": "x"}, False),
    ):
        await build(client, "FROM base", build_args=build_args, shared=shared)
    assert [asked.get("nocache") for path, asked in said.calls if path == "/build"] == ["1", None, None]


async def test_what_an_error_says_fits_into_a_header(engine: Both) -> None:
    """gRPC's clients take 8 KiB; the builder repeats a step of any length in what it says of its failure."""
    said, client = engine
    said.outcome = {"error": f"The command '{'x' * 60_000}' returned a non-zero code: 7"}
    with pytest.raises(InvalidArgument, match=r"The command 'x.*code: 7") as caught:
        await build(client, "FROM base")
    assert len(str(caught.value)) < 4096


async def test_what_a_build_says_is_bounded(engine: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    said, client = engine
    said.outcome = {"stream": "x\n" * 1000 + "the last\n", "aux": {"ID": MADE}}
    await build(client, "FROM base")
    monkeypatch.setattr("rock_env.server.images.builds.MOST_LOG_CHARS", 1999)
    with pytest.raises(InvalidArgument, match="wrote more than 1999 characters"):
        await build(client, "FROM base\nRUN yes")
