"""What is no environment variable, path or timeout is refused by name, and whatever else runs there does not notice."""

from __future__ import annotations

import io
import math
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import grpc
import pytest
import transports
from test_sandbox_backend import backend, box, make_backend, sh  # noqa: F401  (fixtures)

from rock_env.backends.base import Backend
from rock_env.client import Client
from rock_env.errors import InvalidArgument, NotFound
from rock_env.local import EmbeddedServer
from rock_env.proto.v1 import env_pb2
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub
from rock_env.sandbox import Sandbox
from rock_env.spec import Resources, SandboxSpec
from rock_env.wire.channel import target

pytestmark = pytest.mark.any_address

TOYS = [f"--env={Path(__file__).with_name('toy_envs.py')}:TOY"]


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A\0": "x"}, {"A": "x\0y"}])
async def test_an_environment_that_no_process_can_have(box: Sandbox, env: dict[str, str]) -> None:  # noqa: F811
    with pytest.raises(InvalidArgument, match="environment variable"):
        await box.exec(["true"], env=env)
    with pytest.raises(InvalidArgument, match="environment variable"):
        await box.start_process(["true"], env=env)
    with pytest.raises(InvalidArgument, match="environment variable"):
        await box.open_session(env=env)
    assert (await box.exec(["echo", "alive"])).stdout == b"alive\n"


LARGE = [1 << 63, (1 << 64) - 1]


@pytest.mark.parametrize("number", [-1, *LARGE])
async def test_a_number_that_no_system_call_takes(box: Sandbox, number: int) -> None:  # noqa: F811
    await box.write_file("f", b"some")
    process = await box.start_process(["sleep", "60"])
    session = await box.open_session(["sh"], terminal=(24, 80))
    for read in ({"offset": number, "length": 1}, {"offset": 0, "length": number}):
        with pytest.raises(InvalidArgument, match="must be from 0 to"):
            await box.read_range("f", **read)
    with pytest.raises(InvalidArgument, match="must be from 0 to 4095, got"):
        await box.write_file("f", b"x", mode=number)
    with pytest.raises(InvalidArgument, match="must be from 0 to 4095, got 33188"):
        await box.write_file("f", b"x", mode=0o100644)
    with pytest.raises(InvalidArgument, match="signal must be from 1 to 64"):
        await box.signal_process(process, number)
    with pytest.raises(InvalidArgument, match="rows must be from 1 to 65535"):
        await box.resize_session(session, number, 80)
    with pytest.raises(InvalidArgument, match="columns must be from 1 to 65535"):
        await box.open_session(["sh"], terminal=(24, number))
    with pytest.raises(InvalidArgument, match="must be from 0 to"):
        box.session(session, offset=number)
    for stream in ("stdout_offset", "stderr_offset"):
        with pytest.raises(InvalidArgument, match=f"{stream} must be from 0 to"):
            box.process_logs(process, **{stream: number})
    with pytest.raises(InvalidArgument, match="max_output_bytes must be from 0 to"):
        await box.exec(["true"], max_output_bytes=number)
    assert await box.read_range("f", offset=1 << 62, length=1 << 62) == b""
    assert await box.read_file("f") == b"some"


@pytest.mark.parametrize("path", ["a\0b", "x/" * 3000, "/" + "n" * 5000])
async def test_a_path_that_no_file_can_have(box: Sandbox, path: str) -> None:  # noqa: F811
    with pytest.raises(InvalidArgument):
        await box.write_file(path, b"x")
    with pytest.raises((InvalidArgument, NotFound)):
        await box.stat(path)
    with pytest.raises((InvalidArgument, NotFound)):
        await box.list_files(path)
    with pytest.raises((InvalidArgument, NotFound)):
        await box.read_file(path)
    if "\0" in path:
        with pytest.raises(InvalidArgument, match="cwd"):
            await box.exec(["true"], cwd=path)
    assert (await box.exec(["echo", "alive"])).stdout == b"alive\n"


async def test_a_file_far_down_is_written(box: Sandbox) -> None:  # noqa: F811
    deep = "d/" * 1500 + "f"
    await box.write_file(deep, b"x")
    assert await box.read_file(deep) == b"x"


@pytest.mark.slow
async def test_a_deep_tree_is_watched_and_passes_whole(box: Sandbox) -> None:  # noqa: F811
    await box.write_file("d/" * 1500 + "f", b"x")
    async with aclosing(box.watch_files(".", recursive=True)) as changes:
        assert await anext(changes) is None
        await box.write_file("d/end", b"x")
        assert (await anext(changes)).path.startswith("d/")  # type: ignore[union-attr]
    assert len(await box.list_files(".", recursive=True)) == 1502
    dig = "for _ in range(3000): os.mkdir('n'); os.chdir('n')\nopen('f', 'w').write('y')"
    made = await box.exec(["python3", "-c", f"import os; os.mkdir('deep'); os.chdir('deep')\n{dig}"])
    assert made.ok, made.stderr
    with tarfile.open(fileobj=io.BytesIO(b"".join([block async for block in box.download("deep")]))) as tar:
        last = tar.getmembers()[-1]
        assert (len(tar.getmembers()), last.name, last.size) == (3001, "n/" * 3000 + "f", 1)
    for asked in (box.list_files("deep", recursive=True), anext(box.watch_files("deep", recursive=True))):
        with pytest.raises(InvalidArgument, match="File name too long"):
            await asked


async def test_a_place_in_a_file_that_has_too_many_bits(box: Sandbox) -> None:  # noqa: F811
    await box.write_file("f", b"x")
    with pytest.raises(InvalidArgument, match="offset must be from 0"):
        await box.read_range("f", offset=1 << 63, length=1)


@pytest.mark.parametrize(
    "spec",
    [
        SandboxSpec(resources=Resources(disk_bytes=1 << 63)),
        SandboxSpec(resources=Resources(pids=2**32 - 1)),
        SandboxSpec(resources=Resources(memory_bytes=1 << 63)),
        SandboxSpec(resources=Resources(cpus=math.nan)),
        SandboxSpec(lifetime_s=math.inf),
        SandboxSpec(env=(("A\0", "x"),)),
        SandboxSpec(env=(("A=B", "x"),)),
        SandboxSpec(workdir="/" + "n" * 300),
    ],
)
async def test_a_spec_that_no_machine_can_hold(backend: Backend, spec: SandboxSpec) -> None:  # noqa: F811
    with pytest.raises(InvalidArgument):
        await backend.create(spec, sandbox_id="sb-none")
    assert "sb-none" not in await backend.census()


async def test_the_largest_spec_is_carried_out(backend: Backend) -> None:  # noqa: F811
    most = Resources(cpus=100_000, memory_bytes=1 << 50, disk_bytes=1 << 50, pids=4_000_000)
    made = await backend.create(SandboxSpec(resources=most), sandbox_id="sb-most")
    assert (await made.exec(["echo", "alive"])).stdout == b"alive\n"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with transports.served([*TOYS, "--workers=1"]) as running:
        yield running


@pytest.fixture
async def client(server: EmbeddedServer) -> AsyncIterator[Client]:
    async with Client(server.address) as connected:
        yield connected


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, -math.inf, 1e300])
async def test_a_timeout_that_is_none_does_not_end_the_worker_of_all(
    server: EmbeddedServer, client: Client, seconds: float
) -> None:
    env = await client.make("toy")
    await env.reset("train/0", 1)
    step = env_pb2.StepRequest(env_id=env.env_id, sequence=2, idempotency_key="k", action="go")
    async with grpc.aio.insecure_channel(target(server.address)) as channel:
        call = EnvServiceStub(channel).StepMany(env_pb2.StepManyRequest(items=[step], item_timeout_s=seconds))
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "item_timeout_s" in await call.details()
    assert (await env.step("go")).info == {"steps": 1}
