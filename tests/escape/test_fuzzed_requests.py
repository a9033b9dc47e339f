"""Ten thousand requests that nobody should send, to ROCK and the gateway: each gets one clear answer and none does harm.

Half of them come from somebody whom the server does not know. None of these may be answered with more than that.

ROCK_FUZZ_SEED makes other ones, ROCK_FUZZ_REQUESTS more or fewer. An offender is named with its number: the same seed
makes it again, but for the ids in it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from fuzz_gateway import FuzzedGateway, fuzzed_gateway, gateway_case
from fuzz_http import HttpCase, e2b_case, garbage, http_case
from fuzz_messages import UNKNOWN, GrpcCase, Known, grpc_case
from fuzz_server import Fuzzed, Stubs, Verdicts, cleared, furnished, fuzzed_server, send_grpc, send_http
from processes import below, command_line
from waiting import until

from rock_env.proto.v1 import env_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.wire.rest_routes import methods

REQUESTS = int(os.environ.get("ROCK_FUZZ_REQUESTS", "10000"))
SEED = int(os.environ.get("ROCK_FUZZ_SEED", "1"))
MIB = 1 << 20
AT_ONCE = 24
GROWTH_BYTES = 128 * MIB
"""What the server may have grown by: it was given messages of up to 66 MiB, which an allocator may keep as they were."""
KEPT = (
    *("rock_env.env_workers.host", "rock_env.env_workers.rules_host", "rock_env.env_workers.episode_host"),
    *("rock_env.backends.process.zygote", "rock_env.server.strangers.front"),
)
"""Processes that a server keeps for what comes next."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Fuzzed]:
    with fuzzed_server(tmp_path) as running:
        yield running


@pytest.fixture
def gateway() -> Iterator[FuzzedGateway]:
    with fuzzed_gateway() as running:
        yield running


async def all_of(count: int, send: Callable[[int], Awaitable[None]]) -> None:
    """Send so many requests, some at once."""
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await send(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(worker())


async def fuzz(
    server: Fuzzed, gateway: FuzzedGateway, stubs: Stubs, known: Known, verdicts: Verdicts
) -> float:
    """Send everything: four tenths over gRPC, three over REST, the rest in E2B's words, to the gateway and in none.

    Return which share came from somebody unknown.
    """
    calls = list(methods())
    keys, rest = server.keys, server.rest.url
    unknown = sent = 0

    def counted(case: GrpcCase | HttpCase) -> Any:
        nonlocal unknown, sent
        unknown, sent = unknown + (case.who in UNKNOWN), sent + 1
        return case

    def over_grpc(n: int) -> Awaitable[None]:
        return send_grpc(counted(grpc_case(n, SEED, calls, known)), stubs.channel, server, verdicts)

    def over_http(n: int) -> Awaitable[None]:
        return send_http(counted(http_case(n, SEED, calls, known, keys)), rest, verdicts)

    await all_of(REQUESTS * 40 // 100, over_grpc)
    await all_of(REQUESTS * 30 // 100, over_http)
    await all_of(
        REQUESTS * 13 // 100, lambda n: send_http(counted(e2b_case(n, SEED, known, keys)), rest, verdicts)
    )
    await all_of(
        REQUESTS * 13 // 100,
        lambda n: send_http(counted(gateway_case(n, SEED, gateway.key)), gateway.url, verdicts),
    )
    await all_of(REQUESTS * 4 // 100, lambda n: throw(garbage(n, SEED), server, n % 2))
    return (unknown + REQUESTS * 4 // 100) / (sent + REQUESTS * 4 // 100)


async def throw(data: bytes, server: Fuzzed, port: int) -> None:
    """Throw bytes at a port and hang up; half-way where the server does first."""
    address = (server.rest.grpc, server.rest.url)[port].rpartition("/")[2]
    host, _, number = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(number))
    try:
        writer.write(data)
        async with asyncio.timeout(0.05):
            await writer.drain()
            await reader.read()
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()


async def send_too_much(server: Fuzzed, stubs: Stubs) -> None:
    """Send messages beyond the limit, each way; both are refused by name."""
    large = b"\x0a" + b"\xff\xff\xff\x20" + bytes(66 * MIB)
    call = stubs.channel.unary_unary("/rock.v1.SandboxService/Get")(
        large, metadata=server.metadata("sandbox")
    )
    assert (await call.code()).name == "RESOURCE_EXHAUSTED"
    async with server.rest.client() as client:
        reply = await client.post(
            "/v1/sandboxes", content=bytes(66 * MIB), headers={"content-type": "application/json"}
        )
    assert reply.status_code == 413, reply.text


async def works(server: Fuzzed, stubs: Stubs) -> None:
    """Create, run and delete as everybody does, over both transports."""
    who = server.metadata("sandbox")
    box = (await stubs.box.Create(pb.CreateSandboxRequest(), metadata=who)).id
    start = pb.ExecRequest(start=pb.ExecStart(sandbox_id=box, argv=["echo", "hi"]))
    events = [event async for event in stubs.box.Exec(iter([start]), metadata=who)]
    assert (events[0].stdout.data, events[-1].exit.exit_code) == (b"hi\n", 0)
    async with server.rest.client() as client:
        assert (await client.get("/healthz")).json() == {"status": "SERVING"}
        run = await client.post(f"/v1/sandboxes/{box}/exec", json={"start": {"argv": ["sh", "-c", "exit 7"]}})
        assert '"exit_code": 7' in run.text
        assert (await client.delete(f"/v1/sandboxes/{box}")).status_code == 200
    made = await stubs.env.Make(env_pb2.MakeRequest(env="toy", params_json="{}"), metadata=who)
    reset = env_pb2.ResetRequest(env_id=made.env_id, sequence=1, task_id="train/3", seed=1)
    assert (await stubs.env.Reset(reset, metadata=who)).observation


async def unharmed(server: Fuzzed, stubs: Stubs, known: Known) -> None:
    """Look after what belongs to somebody else, of which all ids were known to who sent the requests."""
    theirs = known.others
    who = server.metadata("victim")
    box = theirs["sandbox"][0]
    async with httpx.AsyncClient(base_url=server.rest.url, headers=dict(who), timeout=60) as client:
        assert (await client.get(f"/v1/sandboxes/{box}/file", params={"path": "f"})).content == b"others"
    processes = await stubs.box.ListProcesses(pb.ListProcessesRequest(sandbox_id=box), metadata=who)
    assert [process.process_id for process in processes.processes] == theirs["process"]
    assert not processes.processes[0].HasField("exit")
    snapshots = (await stubs.box.ListSnapshots(pb.ListSnapshotsRequest(), metadata=who)).snapshots
    assert theirs["snapshot"][0] in [snapshot.id for snapshot in snapshots]


def boxed(process: psutil.Process) -> list[str]:
    """Return the command lines that run in boxes of the server."""
    lines = map(command_line, below(process))
    return [line for line in lines if line and not any(name in line for name in KEPT)]


def descriptors(process: psutil.Process) -> int:
    """Return how many the server holds, without that of each tenant's worker, which stays when its environments are gone."""
    workers = sum("-m rock_env.env_workers" in command_line(each) for each in process.children())
    return process.num_fds() - workers


async def emptied(stubs: Stubs, server: Fuzzed) -> None:
    """Delete everything; what a call that was left has begun may appear a little later."""
    give_up_at = time.monotonic() + 60
    while left := await cleared(stubs, server):
        assert time.monotonic() < give_up_at, left
        await asyncio.sleep(0.2)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_ten_thousand_requests_nobody_should_send(server: Fuzzed, gateway: FuzzedGateway) -> None:
    verdicts = Verdicts()
    async with server.channel() as channel:
        stubs = Stubs(channel)
        await works(server, stubs)
        known = await furnished(stubs, server)
        before, handles = server.process.memory_info().rss, descriptors(server.process)
        kept = gateway.process.memory_info().rss
        assert await fuzz(server, gateway, stubs, known, verdicts) > 0.48
        await send_too_much(server, stubs)
        assert not verdicts.offenders, verdicts.first()
        await works(server, stubs)
        await unharmed(server, stubs, known)
        await emptied(stubs, server)
        await until(lambda: boxed(server.process) == [])
        await until(lambda: descriptors(server.process) <= handles)
        grown = server.process.memory_info().rss - before
    assert grown < GROWTH_BYTES, f"the server grew by {grown / MIB:.0f} MiB"
    assert gateway.process.is_running()
    assert gateway.process.memory_info().rss - kept < GROWTH_BYTES
    log = server.log.read_text()
    assert "Traceback" not in log, log[log.index("Traceback") - 500 :][:4000]
