"""What the EnvService promises over a real connection: exactly once, reset to anywhere, truthful failure.

Everything runs against embedded servers: real processes, real sockets, the client users have.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from round_robin import connected
from toy_episodes import started

from rock_env.client import AsyncEnv, Client
from rock_env.env import StepResult, observation_hash
from rock_env.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    ResetDivergence,
    Unimplemented,
    UnknownName,
)
from rock_env.local import EmbeddedServer
from rock_env.plugins import env_params, load_env, names
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1 import env_pb2_grpc
from rock_env.wire.channel import target

pytestmark = pytest.mark.any_address

SIMULATORS = [name for name in names("ale.envs") if load_env(name).sandbox is None]
ONE_TURN = {"math"}


async def play(env: AsyncEnv, actions: list[str]) -> list[StepResult]:
    """Act until the episode ends, if it does."""
    results: list[StepResult] = []
    for action in actions:
        results.append(await env.step(action))
        if results[-1].terminated:
            break
    return results


def oracle_actions(name: str, task_id: str, first: str, turns: int) -> list[str]:
    """Return legal actions: what the environment's oracle plays at its first observation."""
    spec = load_env(name)
    params = env_params(spec, "{}")
    split, index = task_id.split("/")
    oracle = spec.oracle(params, spec.tasks(params).get(split, int(index)))
    return [oracle(first)] * turns


# -- the life of an environment


@pytest.mark.parametrize("name", SIMULATORS)
async def test_equal_seeds_give_equal_episodes(client: Client, name: str) -> None:
    first, second = await client.make(name), await client.make(name)
    start = await first.reset("train/0", 7)
    assert await second.reset("train/0", 7) == start
    actions = oracle_actions(name, "train/0", start[0], 2)
    assert await play(first, actions) == await play(second, actions)
    assert await first.evaluate() == await second.evaluate()


async def test_a_reply_holds_all_the_environment_said(client: Client) -> None:
    env = await client.make("toy", '{"prefix": "é "}')
    observation, info, instruction = await env.reset("test/5", 1)
    assert observation.startswith("é 0:")
    assert (info, instruction) == ({"index": 5}, "Count to 5.")
    result = await env.step("end")
    assert (result.reward, result.terminated, result.truncated, result.info) == (
        0.5,
        True,
        False,
        {"steps": 1},
    )
    verdict = await env.evaluate()
    assert (verdict.reward, verdict.passed, verdict.details) == (1.0, True, "steps")


async def test_calls_out_of_turn_are_refused(client: Client) -> None:
    env = await client.make("toy")
    for call in (env.step("go"), env.evaluate(), env.checkpoint()):
        with pytest.raises(FailedPrecondition, match="before reset"):
            await call
    await env.reset("train/0", 0)
    await env.step("end")
    with pytest.raises(FailedPrecondition, match="after the end"):
        await env.step("go")
    await env.reset("train/0", 0)
    assert (await env.step("go")).info == {"steps": 1}


async def test_a_second_call_in_flight_is_refused(client: Client) -> None:
    env = await started(client)
    results = await asyncio.gather(env.step("go"), env.step("go"), return_exceptions=True)
    assert isinstance(results[0], StepResult)
    assert isinstance(results[1], FailedPrecondition)


async def test_an_abandoned_call_still_counts(client: Client) -> None:
    env = await started(client)
    abandoned = asyncio.ensure_future(env.step("go"))
    await asyncio.sleep(0)
    abandoned.cancel()
    while True:  # in flight until its reply is in
        try:
            result = await env.step("go")
            break
        except FailedPrecondition:
            await asyncio.sleep(0.01)
    assert result.info == {"steps": 2}


async def test_unknown_names_are_named(client: Client) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'toy'"):
        await client.make("toyy")
    with pytest.raises(UnknownName, match="Did you mean 'prefix'"):
        await client.make("toy", '{"prefixx": ""}')
    with pytest.raises(InvalidArgument, match="prefix"):
        await client.make("toy", '{"prefix": 3}')
    env = await client.make("toy")
    with pytest.raises(InvalidArgument, match="split/index"):
        await env.reset("train", 0)
    with pytest.raises(UnknownName, match="validation"):
        await env.reset("validation/0", 0)
    await env.reset("train/0", 0)  # a refusal uses up no sequence number


async def test_a_closed_environment_is_gone(client: Client) -> None:
    env = await started(client)
    await env.close()
    await env.close()
    with pytest.raises(NotFound, match="Make it again"):
        await env.step("go")


async def test_the_server_describes_what_it_offers(client: Client) -> None:
    offered = {env.name: env for env in await client.list_envs()}
    assert {"toy", "toy_plain", "toy_box", *names("ale.envs")} <= offered.keys()
    assert (offered["toy"].snapshots, offered["toy_plain"].replayable, offered["toy_box"].sandboxed) == (
        True,
        False,
        True,
    )
    assert "prefix" in json.loads(offered["toy"].params_schema_json)["properties"]
    assert await client.splits("toy") == {"train": 100, "test": 100}


async def test_messages_beyond_grpcs_default_limit_pass(client: Client) -> None:
    large = "x" * (512 << 10)  # an action, and JSON of one call, have at most 1 MiB
    env = await client.make("toy")
    await env.reset("train/0", 0)
    assert (await env.step(f"again {large}")).observation == large * 10


async def test_health_and_reflection_answer(server: EmbeddedServer) -> None:
    async with grpc.aio.insecure_channel(target(server.address)) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "rock.v1.EnvService", "rock.v1.SandboxService"):
            reply = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (reply,) = [reply async for reply in reflection.ServerReflectionInfo(iter([request]))]
        assert "rock.v1.EnvService" in {service.name for service in reply.list_services_response.service}


# -- exactly once


async def test_a_retry_returns_the_stored_reply(stub: env_pb2_grpc.EnvServiceStub) -> None:
    make = pb.MakeRequest(env="toy", idempotency_key=secrets.token_hex(4))
    env_id = (await stub.Make(make)).env_id
    assert (await stub.Make(make)).env_id == env_id
    reset = pb.ResetRequest(env_id=env_id, sequence=1, idempotency_key="a", task_id="train/0", seed=3)
    assert await stub.Reset(reset) == await stub.Reset(reset)
    step = pb.StepRequest(env_id=env_id, sequence=2, idempotency_key="b", action="go")
    first = await stub.Step(step)
    assert await stub.Step(step) == first
    batched = [
        reply async for chunk in stub.StepMany(pb.StepManyRequest(items=[step])) for reply in chunk.items
    ]
    assert batched == [first]
    evaluate = pb.EvaluateRequest(env_id=env_id, sequence=3, idempotency_key="c")
    assert (await stub.Evaluate(evaluate)).reward == 1.0
    assert await stub.Evaluate(evaluate) == await stub.Evaluate(evaluate)


@pytest.mark.parametrize(("sequence", "key"), [(1, "other"), (3, "b"), (0, "b")])
async def test_a_gap_or_another_key_is_refused(
    stub: env_pb2_grpc.EnvServiceStub, sequence: int, key: str
) -> None:
    env_id = (await stub.Make(pb.MakeRequest(env="toy"))).env_id
    await stub.Reset(pb.ResetRequest(env_id=env_id, sequence=1, idempotency_key="a", task_id="train/0"))
    step = pb.StepRequest(env_id=env_id, sequence=sequence, idempotency_key=key, action="go")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Step(step)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert ("rock-error-code", "failed_precondition") in tuple(caught.value.trailing_metadata() or ())
    details = caught.value.details() or ""
    assert "got" in details
    assert "expected" in details


class CuttingProxy:
    """A TCP proxy that, once armed, cuts the connection instead of passing the server's next bytes on."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._handlers: list[asyncio.Task[None]] = []
        self._sinks: list[asyncio.StreamWriter] = []
        self.armed = False
        self.cuts = 0

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[str]:
        listener = await asyncio.start_server(self._handle, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        async with listener:
            yield f"{'http://' if self._address.startswith('http') else ''}127.0.0.1:{port}"
        for sink in self._sinks:
            sink.close()  # gRPC keeps a closed channel's connection until it is garbage collected
        await asyncio.gather(*self._handlers)

    async def _handle(self, down_reader: asyncio.StreamReader, down: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.append(task)
        up_reader, up = await connected(self._address)
        self._sinks += [up, down]
        await asyncio.gather(self._pump(down_reader, up), self._pump(up_reader, down, replies=True))
        for sink in (up, down):
            with suppress(ConnectionError):
                await sink.wait_closed()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, replies: bool = False
    ) -> None:
        """Copy until the source ends or the proxy cuts; then close the sink, which ends the other direction too."""
        with suppress(ConnectionError):
            while data := await source.read(1 << 16):
                if replies and self.armed:
                    self.armed = False
                    self.cuts += 1
                    break
                sink.write(data)
        sink.close()


async def test_a_lost_connection_repeats_no_action(address: str) -> None:
    proxy = CuttingProxy(address)
    async with proxy.listen() as listening, Client(listening) as client:
        proxy.armed = True  # Make is repeated by key
        envs = await asyncio.gather(*(client.make("toy") for _ in range(8)))
        await asyncio.gather(*(env.reset("train/0", 0) for env in envs))
        for turn in range(1, 6):
            proxy.armed = True
            results = await asyncio.gather(*(env.step("go") for env in envs))
            assert [result.info["steps"] for result in results] == [turn] * 8
            proxy.armed = True
            assert (await envs[0].evaluate()).reward == turn
        assert proxy.cuts >= 6


# -- batches


async def test_a_batch_answers_every_item_in_order(client: Client) -> None:
    envs = await asyncio.gather(*(client.make("toy", json.dumps({"prefix": f"{i}/"})) for i in range(700)))
    resets = await asyncio.gather(*(env.reset("train/0", 0) for env in envs))
    assert [observation.split("/")[0] for observation, _, _ in resets] == [str(i) for i in range(700)]
    await envs[5].step("end")
    results = await client.step_many([(env, "go") for env in envs])
    assert isinstance(results[5], FailedPrecondition)
    others = [result for result in results if isinstance(result, StepResult)]
    assert [result.observation.split("/")[0] for result in others] == [str(i) for i in range(700) if i != 5]


# -- reset to anywhere


@pytest.mark.parametrize("name", [*SIMULATORS, "toy"])
async def test_snapshot_replay_and_fork_agree(client: Client, name: str) -> None:
    env = await client.make(name)
    observation, _, instruction = await env.reset("train/1", 11)
    actions = ["go"] * 4 if name == "toy" else oracle_actions(name, "train/1", observation, 4)
    cut = 0 if name in ONE_TURN else 2
    prefix = await play(env, actions[:cut])
    assert not any(result.terminated for result in prefix), "the test needs an episode that goes on"
    checkpoint = await env.checkpoint()
    (forked,) = await env.fork(1)
    future = await play(env, actions[cut:])

    replayed = await client.make(name)
    turns = [(action, observation_hash(r.observation)) for action, r in zip(actions, prefix, strict=False)]
    assert (await replayed.reset("train/1", 11, turns, initial_hash=observation_hash(observation)))[
        2
    ] == instruction
    restored = await client.make(name)
    assert (await restored.restore(checkpoint))[2] == instruction
    for branch in (forked, replayed, restored):
        assert await play(branch, actions[cut:]) == future
        assert await branch.evaluate() == await env.evaluate()


async def test_a_resume_seed_gives_another_future_of_the_same_state(client: Client) -> None:
    env = await started(client)
    past = [("go", b"")] * 2
    await env.reset("train/3", 1, past)
    checkpoint = await env.checkpoint()
    own = await play(env, ["go"] * 3)
    await env.restore(checkpoint, resume_seed=99)
    other = await play(env, ["go"] * 3)
    assert [result.info for result in other] == [result.info for result in own]
    assert [result.observation for result in other] != [result.observation for result in own]
    await env.reset("train/3", 1, past, resume_seed=99)
    assert await play(env, ["go"] * 3) == other
    await env.restore(checkpoint)
    forks = await env.fork(3, [99, 5, 99])
    futures = [await play(fork, ["go"] * 3) for fork in forks]
    assert futures[0] == futures[2] == other
    assert futures[1] != other


async def test_a_divergent_replay_names_the_turn(client: Client) -> None:
    env = await started(client)
    right = observation_hash((await env.step("go")).observation)
    with pytest.raises(ResetDivergence, match="turn 2"):
        await env.reset("train/3", 1, [("go", right), ("go", b"12345678")])
    with pytest.raises(ResetDivergence, match="turn 0"):
        await env.reset("train/3", 1, initial_hash=b"12345678")
    with pytest.raises(ResetDivergence, match="had ended"):
        await env.reset("train/3", 1, [("end", b""), ("go", b"")])
    with pytest.raises(ResetDivergence, match="until it is reset"):
        await env.step("go")
    await env.reset("train/3", 1, [("go", right)])
    assert (await env.step("go")).info == {"steps": 2}


async def test_what_an_environment_lacks_is_unimplemented(client: Client) -> None:
    env = await client.make("toy_plain")
    with pytest.raises(Unimplemented, match="without a prefix"):
        await env.reset("train/0", 0, [("go", b"")])
    await env.reset("train/0", 0)
    with pytest.raises(Unimplemented, match="no snapshots"):
        await env.checkpoint()


async def test_a_checkpoint_fits_only_its_own_environment(client: Client) -> None:
    checkpoint = await (await started(client)).checkpoint()
    other = await client.make("toy", '{"prefix": "x"}')
    with pytest.raises(InvalidArgument, match="another environment"):
        await other.restore(checkpoint)
    with pytest.raises(NotFound, match="unknown checkpoint"):
        await other.restore("nonsense")
    await other.reset("train/0", 0)
