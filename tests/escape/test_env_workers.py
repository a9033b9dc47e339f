"""Environments without a sandbox, whose code and callers do their worst: the server goes on for everybody else."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from waiting import until
from worker_env import LIES

from rock_env.env_workers.pool import EnvHostWorker
from rock_env.local import EmbeddedServer, start_embedded
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub
from rock_env.wire.channel import CLIENT_OPTIONS, target

WORKER = Path(__file__).with_name("worker_env.py")
CASES = [
    *(("Make", lie) for lie in LIES),
    *((call, "no message") for call in ("Step", "Checkpoint", "ListSplits")),
    *((call, "more items") for call in ("StepMany", "Checkpoint")),
]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with start_embedded([f"--env={WORKER}:WORKER", "--workers=1"]) as running:
        yield running


@pytest.fixture
async def stub(server: EmbeddedServer) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(target(server.address), options=CLIENT_OPTIONS) as channel:
        yield EnvServiceStub(channel)


async def status(stub: Any, env_id: str) -> grpc.StatusCode:
    """Return how a step ends; where the environment is there, its worker is at something else and gives no answer."""
    step = pb.StepRequest(env_id=env_id, sequence=1, idempotency_key="s")
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stub.Step(step, timeout=0.2)
    return failed.value.code()


async def test_an_environment_may_be_closed_before_its_batch_is_made(stub: Any, tmp_path: Path) -> None:
    first = await stub.Make(pb.MakeRequest(env="worker"))
    prefix, _, number = first.env_id.rpartition("-")
    guessed = f"{prefix}-{int(number) + 1}"
    waits = json.dumps({"until": f"{tmp_path}/go"})
    slow = pb.MakeRequest(env="worker", params_json=waits, idempotency_key="b")
    items = [pb.MakeRequest(env="worker", idempotency_key="a"), slow]
    batch = stub.MakeMany(pb.MakeManyRequest(items=items))
    making = asyncio.ensure_future(anext(aiter(batch)))
    while await status(stub, guessed) is grpc.StatusCode.NOT_FOUND:
        pass
    closing = asyncio.ensure_future(
        anext(aiter(stub.CloseMany(pb.CloseManyRequest(items=[{"env_id": guessed}]))))
    )
    while await status(stub, guessed) is not grpc.StatusCode.NOT_FOUND:
        pass
    (tmp_path / "go").touch()
    made = await making
    await closing
    assert [item.env_id for item in made.items] == [guessed, f"{prefix}-{int(number) + 2}"]
    again = await stub.Make(pb.MakeRequest(env="worker", idempotency_key="a"))
    assert again.env_id not in (guessed, ""), "what was closed is made anew"


@pytest.mark.parametrize(("call", "lie"), CASES)
async def test_a_worker_that_lies_is_lost_and_the_server_is_not(
    stub: Any, tmp_path: Path, lie: str, call: str
) -> None:
    ids = []
    for _ in range(2):
        ids.append((await stub.Make(pb.MakeRequest(env="worker"))).env_id)
        await stub.Reset(pb.ResetRequest(env_id=ids[-1], sequence=1, idempotency_key="1", task_id="train/0"))
    told = tmp_path / "lies"
    lying = stub.Step(pb.StepRequest(env_id=ids[0], sequence=2, idempotency_key="2", action=f"{lie}{told}"))
    await until(told.exists)
    step = pb.StepRequest(env_id=ids[1], sequence=2, idempotency_key="2", action="x")
    asked = {
        "Make": lambda: stub.Make(pb.MakeRequest(env="worker", idempotency_key="k")),
        "Step": lambda: stub.Step(step),
        "StepMany": lambda: anext(aiter(stub.StepMany(pb.StepManyRequest(items=[step])))),
        "Checkpoint": lambda: stub.Checkpoint(pb.CheckpointRequest(env_id=ids[1], idempotency_key="c")),
        "ListSplits": lambda: stub.ListSplits(pb.ListSplitsRequest(env="worker")),
    }
    if call == "StepMany":
        [item] = (await asked[call]()).items
        assert item.error.code == "env_lost"
    else:
        with pytest.raises(grpc.aio.AioRpcError, match=r"the env-host worker .* died"):
            await asked[call]()
    with pytest.raises(grpc.aio.AioRpcError, match="died"):
        await lying
    await stub.Make(pb.MakeRequest(env="worker"))


async def test_a_worker_that_only_closes_its_connection_holds_up_nothing() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with subprocess.Popen(["sleep", "3600"]) as process:  # noqa: ASYNC220
        loop = asyncio.get_running_loop()
        _, worker = await loop.create_unix_connection(lambda: EnvHostWorker(process, 5.0), sock=ours)
        theirs.close()
        turns = 0
        while worker.lost is None:
            await asyncio.sleep(0.001)
            turns += 1
    assert turns > 20
    assert "closed its connection" in worker.lost.message


async def test_where_no_process_can_be_started_the_server_goes_on() -> None:
    with start_embedded([f"--env={WORKER}:WORKER", "--workers=1"]) as server:
        async with grpc.aio.insecure_channel(target(server.address), options=CLIENT_OPTIONS) as channel:
            stub = EnvServiceStub(channel)
            await stub.ListEnvs(pb.ListEnvsRequest())
            soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(
                server.pid, resource.RLIMIT_NOFILE, (3, hard)
            )  # as if others had all its descriptors
            for ask in (
                lambda: stub.Make(pb.MakeRequest(env="worker")),
                lambda: stub.ListSplits(pb.ListSplitsRequest(env="worker")),
            ):
                with pytest.raises(grpc.aio.AioRpcError, match="Too many open files") as refused:
                    await ask()
                assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (soft, hard))
            assert (await stub.Make(pb.MakeRequest(env="worker"))).env_id
