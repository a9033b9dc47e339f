"""Environments in a sandbox, over a real connection: the promises of the others, and their makers at work in the box."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from toy_episodes import started

from rock_env.client import Client
from rock_env.env import observation_hash
from rock_env.errors import (
    DeadlineExceeded,
    FailedPrecondition,
    InfraError,
    InvalidArgument,
    NotFound,
    ResetDivergence,
)
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1 import env_pb2_grpc


async def test_a_sandboxed_environment_keeps_the_same_promises(
    client: Client, stub: env_pb2_grpc.EnvServiceStub
) -> None:
    env = await client.make("toy_box")
    with pytest.raises(FailedPrecondition, match="before reset"):
        await env.step("true")
    assert (await env.reset("train/0", 4))[0] == "seed 4"
    first = await env.step("cat seed; echo one >> log; cat log")
    assert first.observation == "4one\n"
    step = pb.StepRequest(env_id=env.env_id, sequence=2, idempotency_key="other", action="true")
    with pytest.raises(grpc.aio.AioRpcError, match="another idempotency key"):
        await stub.Step(step)
    assert (await env.evaluate()).reward == 1.0

    twin = await client.make("toy_box")
    await twin.reset(
        "train/0", 4, [("cat seed; echo one >> log; cat log", observation_hash(first.observation))]
    )
    assert (await twin.step("cat log")).observation == "one\n"
    with pytest.raises(ResetDivergence, match="turn 1"):
        await twin.reset("train/0", 4, [("echo else", observation_hash("x"))])
    await env.reset("train/0", 5)
    assert (await env.step("ls")).observation == "seed\n"  # a fresh box
    await asyncio.gather(env.close(), twin.close())


async def test_its_maker_works_in_the_sandbox_of_an_environment(client: Client) -> None:
    env = await client.make("toy_box")
    with pytest.raises(FailedPrecondition, match="no sandbox to work in"):
        await env.sandbox()
    await env.reset("train/0", 4)
    box = await env.sandbox()
    assert await box.files.read("seed") == b"4"
    assert (await box.exec(["sh", "-c", "printf 'one\ntwo\n' > log"])).ok
    assert (await env.step("cat log")).observation == "one\ntwo\n"
    assert (await env.evaluate()).reward == 2.0
    saved = await env.checkpoint()
    await env.reset("train/0", 5)
    fresh = await env.sandbox()
    assert fresh.id != box.id
    assert await fresh.files.read("seed") == b"5"
    with pytest.raises((NotFound, FailedPrecondition), match=box.id):
        await box.exec(["true"])
    await env.reset("train/0", 4)
    with pytest.raises(ResetDivergence):  # work in the sandbox is no action: it is not repeated
        await env.restore(saved)
    await env.close()
    with pytest.raises((NotFound, FailedPrecondition), match=fresh.id):
        await fresh.exec(["true"])


async def test_an_environment_without_a_sandbox_says_so(client: Client) -> None:
    env = await started(client)
    with pytest.raises(FailedPrecondition, match="toy is an environment without one"):
        await env.sandbox()


async def test_a_sandboxed_environment_goes_back_and_forks_by_its_actions(client: Client) -> None:
    env, other = await client.make("toy_box"), await client.make("toy")
    with pytest.raises(FailedPrecondition, match="before reset"):
        await env.checkpoint()
    await env.reset("train/0", 4)
    await env.step("echo one >> log; cat log")
    saved = await env.checkpoint()
    assert (await env.step("echo two >> log; cat log")).observation == "one\ntwo\n"
    assert (await env.restore(saved))[:2] == ("one\n", {})
    assert (await env.step("cat log")).observation == "one\n"
    forks = await env.fork(2)
    await forks[0].step("echo mine >> log")
    assert [(await each.step("cat log seed")).observation for each in (*forks, env)] == [
        "one\nmine\n4",
        "one\n4",
        "one\n4",
    ]
    await other.reset("train/0", 4)
    with pytest.raises(InvalidArgument, match="another environment"):
        await other.restore(saved)
    with pytest.raises(InvalidArgument, match="another environment"):
        await env.restore(await other.checkpoint())
    await env.reset("train/0", 1)
    await env.step("date +%N")
    chaotic = await env.checkpoint()
    with pytest.raises(ResetDivergence, match="turn 1"):
        await env.restore(chaotic)
    with pytest.raises(ResetDivergence, match="turn 1"):
        await env.step("true")
    await asyncio.gather(env.close(), other.close(), *(fork.close() for fork in forks))


async def test_a_sandboxed_call_may_be_late_or_fail(client: Client) -> None:
    env = await client.make("toy_box")
    await env.reset("train/0", 0)
    with pytest.raises(InfraError, match="ValueError: as asked"):
        await env.step("raise")
    await env.reset("train/0", 0)
    with pytest.raises(DeadlineExceeded, match=r"longer than 0\.2 s"):
        await env.step("sleep 60", timeout_s=0.2)
    with pytest.raises(DeadlineExceeded):
        await env.step("true")
    await env.reset("train/0", 0)
    running = asyncio.ensure_future(env.step("sleep 60"))
    await asyncio.sleep(0.1)
    await env.close()  # interrupts
    with pytest.raises(NotFound, match="closed"):
        await running
