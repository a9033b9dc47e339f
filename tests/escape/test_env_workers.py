"""Environments without a sandbox, whose code and callers do their worst: the server goes on for everybody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from rock_env.local import start_embedded
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub
from rock_env.wire.channel import CLIENT_OPTIONS, target

WORKER = Path(__file__).with_name("worker_env.py")


@pytest.fixture
async def stub() -> AsyncIterator[Any]:
    with start_embedded([f"--env={WORKER}:WORKER", "--workers=1"]) as server:
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
