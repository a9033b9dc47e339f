"""An episode of a library that is not ours: what it does, or an answer does through it, ends with it and harms no other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterator
from pathlib import Path

import grpc
import pytest

from rock_env.client import AsyncEnv, Client
from rock_env.env import StepResult
from rock_env.errors import (
    DeadlineExceeded,
    EnvLost,
    InfraError,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    RockError,
)
from rock_env.local import start_embedded
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub
from rock_env.wire.channel import target

LIBRARY = f"--env={Path(__file__).with_name('hostile_library.py')}:HOSTILE"
LIMIT_S = 1.0


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with start_embedded([LIBRARY, "--worker-memory-gib=0.5"]) as server:
        yield server.address


async def made(client: Client, **params: object) -> AsyncEnv:
    env = await client.make("hostile", json.dumps(params))
    await env.reset("train/0", 0)
    return env


async def process(env: AsyncEnv) -> str:
    return (await env.step("go on")).observation.split()[1]


OF_ANSWERS = [
    "setattr(type(self), 'worth', lambda self: 1.0)",
    "__import__('os').kill(__import__('os').getppid(), 0)",
    "1 + 1",
]
ENDED: list[tuple[str, type[RockError], str]] = [
    *(
        (f"eval {answer}", PermissionDenied, "ran code for an answer .*(compile|exec)")
        for answer in OF_ANSWERS
    ),
    ("import", PermissionDenied, "import"),
    ("fork", PermissionDenied, "os.fork"),
    ("kill", PermissionDenied, "os.kill"),
    ("listen", PermissionDenied, "socket.__new__"),
    ("open", PermissionDenied, "open"),
    ("unpickle", PermissionDenied, "pickle"),
    ("fill", ResourceExhausted, "more memory"),
    ("spin", DeadlineExceeded, "longer than 1 s"),
    ("swallow", DeadlineExceeded, "longer than 1 s"),
    ("deaf", DeadlineExceeded, "could not be interrupted"),
    ("exit", EnvLost, "exit code 3"),
    ("crash", EnvLost, "signal 11"),
    ("scrawl", EnvLost, "answered with what none says"),
    ("flood", ResourceExhausted, "the answer has"),
]


@pytest.mark.parametrize("name", ["ValueError", "KeyError", "RecursionError", "Strange", "AssertionError"])
async def test_what_a_step_raises_on_an_action_is_the_actions_fault(address: str, name: str) -> None:
    async with Client(address) as client:
        env = await made(client)
        before = await process(env)
        results = [await env.step(f"raise {name}") for _ in range(2)]
        assert (
            results
            == [StepResult(f"No action that hostile can take: it raised {name}.", info={"illegal": True})] * 2
        )
        assert await process(env) == before


@pytest.mark.parametrize(
    ("name", "error"),
    [("MemoryError", ResourceExhausted), ("PermissionError", InfraError), ("TimeoutError", InfraError)],
)
async def test_what_a_machine_refuses_a_step_is_no_answers_fault(
    address: str, name: str, error: type[RockError]
) -> None:
    async with Client(address) as client:
        env = await made(client)
        with pytest.raises(error):
            await env.step(f"raise {name}")


@pytest.mark.parametrize(("act", "error", "said"), ENDED, ids=[act for act, _, _ in ENDED])
async def test_what_ends_an_episode_is_an_error_by_name_and_touches_no_other(
    address: str, act: str, error: type[RockError], said: str
) -> None:
    async with Client(address) as client:
        neighbour, env = await made(client), await made(client)
        before = await process(neighbour)
        with pytest.raises(error, match=said):
            await env.step(act, timeout_s=LIMIT_S)
        if act != "flood":  # what it said was too long, and it goes on
            with pytest.raises(error, match="until it is reset"):
                await env.evaluate()
        assert await process(neighbour) == before
        await env.reset("train/0", 0)
        assert (await env.step("again")).observation.startswith("1 ")
        assert (await env.evaluate()).reward == 0.0
        await neighbour.close()
        await env.close()


@pytest.mark.parametrize(
    "call", ["ptrace", "kill", "fork", "socket", "creat", "limit", "signal by descriptor"]
)
async def test_past_python_the_kernel_refuses(address: str, call: str) -> None:
    async with Client(address) as client:
        neighbour, env = await made(client), await made(client)
        before = await process(neighbour)
        assert (await env.step(f"call {call}")).observation.endswith(" -1")
        assert await process(neighbour) == before
        await env.close()
        early = await client.make("hostile", json.dumps({"opening": f"call {call}"}))
        assert (await early.reset("train/0", 0))[0] == "-1"
        await early.close()
        assert await process(neighbour) == before


@pytest.mark.parametrize("act", ["fork", "kill", "listen", "open"])
async def test_a_reset_may_not_either(address: str, act: str) -> None:
    async with Client(address) as client:
        env = await client.make("hostile", json.dumps({"opening": act}))
        with pytest.raises(InfraError, match="PermissionError"):
            await env.reset("train/0", 0)
        await made(client)


async def test_a_class_that_was_patched_is_the_next_episodes_own_again(address: str) -> None:
    async with Client(address) as client:
        env = await made(client)
        await env.step("patch")
        assert (await env.step("on")).reward == 1.0  # its own process is its own
        first = await process(env)
        await env.reset("train/0", 0)
        assert (await env.step("on")).reward == 0.0
        assert await process(env) != first
        assert (await (await made(client)).step("on")).reward == 0.0


async def test_an_episode_that_runs_holds_up_no_other(address: str) -> None:
    async with Client(address) as client:
        busy = await client.make("hostile", json.dumps({"opening": "deaf"}))
        held = asyncio.create_task(busy.reset("train/0", 0, timeout_s=3600))
        env = await made(client)
        for _ in range(20):
            await env.step("go on")
        assert not held.done()
        await busy.close()
        with pytest.raises(NotFound, match="closed meanwhile"):
            await held


async def test_a_reset_ends_with_its_callers_deadline(address: str) -> None:
    async with Client(address) as client:
        for opening in ("spin", "deaf"):
            env = await client.make("hostile", json.dumps({"opening": opening}))
            with pytest.raises(DeadlineExceeded, match="longer than 1 s"):
                await env.reset("train/0", 0, timeout_s=LIMIT_S)


async def test_a_checkpoint_goes_on_in_a_fresh_process(address: str) -> None:
    async with Client(address) as client:
        env = await made(client)
        await env.step("patch")
        checkpoint = await env.checkpoint()
        [twin] = await env.fork(1)
        other = await made(client)
        await other.step("patch")
        await other.restore(checkpoint)
        for each in (twin, other):
            result = await each.step("go on")
            assert (result.observation.split()[0], result.reward) == ("2", 0.0)
        assert (await env.step("go on")).reward == 1.0


async def test_output_has_nowhere_to_go(address: str) -> None:
    async with Client(address) as client:
        env = await made(client)
        assert (await env.step("print")).observation.endswith(str(1 << 26))


async def test_a_prefix_is_watched_too(address: str) -> None:
    async with Client(address) as client:
        env = await client.make("hostile")
        with pytest.raises(PermissionDenied, match="ran code for an answer"):
            await env.reset("train/0", 0, [("go on", b""), (f"eval {OF_ANSWERS[0]}", b"")])
        await env.reset("train/0", 0)
        assert (await env.step("go on")).reward == 0.0


async def test_the_order_of_calls_is_kept_over_all_processes_of_an_environment(address: str) -> None:
    async with grpc.aio.insecure_channel(target(address)) as channel:
        stub = EnvServiceStub(channel)
        env_id = (await stub.Make(pb.MakeRequest(env="hostile"))).env_id

        def reset(sequence: int, key: str) -> Awaitable[pb.ResetResponse]:
            request = pb.ResetRequest(
                env_id=env_id, sequence=sequence, idempotency_key=key, task_id="train/0"
            )
            return stub.Reset(request)

        def step(sequence: int, key: str) -> Awaitable[pb.StepResponse]:
            request = pb.StepRequest(env_id=env_id, sequence=sequence, idempotency_key=key, action="go on")
            return stub.Step(request)

        await reset(1, "a")
        first = await step(2, "b")
        assert await step(2, "b") == first
        for stale in (reset(1, "a"), reset(2, "c"), reset(4, "d"), step(2, "e"), step(4, "f")):
            with pytest.raises(grpc.aio.AioRpcError, match="sequence") as refused:
                await stale
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        again = await reset(3, "g")
        assert await reset(3, "g") == again
        second = await step(4, "h")
        assert await step(4, "h") == second
    pids = [reply.observation.split()[1] for reply in (first, second)]
    assert [reply.observation.split()[0] for reply in (first, second)] == ["1", "1"]
    assert pids[0] != pids[1]
