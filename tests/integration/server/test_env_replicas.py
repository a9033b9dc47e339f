"""Environments among servers that share a real PostgreSQL: any of them may be asked, one of them makes each."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from integration.replica_fleet import LEASE_S, Fleet, Server, refusal, running_fleet
from waiting import until

from rock_env.client import Client
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub
from rock_env.security.auth import new_token
from rock_env.security.token_file import add_token
from rock_env.server.replicas.trust.passes import HEADER, PEERS, Admitted, Passes
from rock_env.store.open import open_store
from rock_env.store.postgres.members import Members
from rock_env.store.postgres.records import PostgresStore

STEP = "/rock.v1.EnvService/Step"


@pytest.fixture
async def fleet(new_database: Callable[[], str]) -> AsyncIterator[Fleet]:
    async with running_fleet(new_database()) as made:
        yield made


def envs(server: Server) -> Any:
    return EnvServiceStub(server.channel)


async def made(server: Server, key: str, env: str = "frozen_lake") -> str:
    return str((await envs(server).Make(pb.MakeRequest(env=env, idempotency_key=key))).env_id)


async def begun(server: Server, env_id: str) -> pb.ResetResponse:
    return await envs(server).Reset(
        pb.ResetRequest(env_id=env_id, sequence=1, idempotency_key="r", task_id="train/0", seed=0)
    )


def step(env_id: str, sequence: int = 2) -> pb.StepRequest:
    return pb.StepRequest(env_id=env_id, sequence=sequence, idempotency_key=f"s{sequence}", action="right")


async def items(call: Any) -> list[Any]:
    return [item async for chunk in call for item in chunk.items]


@pytest.mark.first
async def test_any_replica_answers_for_every_environment(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    env_id = await made(first, "a")
    reset = await begun(second, env_id)
    assert "P" in reset.observation
    stepped = await envs(second).Step(step(env_id))
    assert stepped == await envs(first).Step(step(env_id)), "the same call is answered once"
    snapshot = await envs(second).Checkpoint(pb.CheckpointRequest(env_id=env_id, idempotency_key="c"))
    forks = await envs(second).Fork(pb.ForkRequest(env_id=env_id, count=2, idempotency_key="f"))
    again = pb.RestoreRequest(
        env_id=forks.env_ids[0], sequence=1, idempotency_key="x", checkpoint_id=snapshot.checkpoint_id
    )
    assert (await envs(second).Restore(again)).observation == stepped.observation
    graded = await envs(second).Evaluate(pb.EvaluateRequest(env_id=env_id, sequence=3, idempotency_key="e"))
    assert graded.details
    gap = await refusal(envs(second).Step(step(env_id, 9)))
    assert (gap[0], gap[2]["rock-error-code"]) == ("FAILED_PRECONDITION", "failed_precondition")
    await envs(second).Close(pb.CloseRequest(env_id=env_id))
    for server in (first, second):
        assert (await refusal(envs(server).Step(step(env_id, 4))))[0] == "NOT_FOUND"


@pytest.mark.parametrize("env", ["frozen_lake", "terminal"])
async def test_an_environment_goes_on_from_another_replicas_checkpoint(fleet: Fleet, env: str) -> None:
    first, second = await fleet.start(), await fleet.start()
    there, here = await made(first, "a", env), await made(second, "b", env)
    begun_there = await begun(first, there)
    action = "right" if env == "frozen_lake" else "echo kept > file; cat file"
    acted = pb.StepRequest(env_id=there, sequence=2, idempotency_key="s", action=action)
    stepped = await envs(first).Step(acted, timeout=60)
    kept = await envs(first).Checkpoint(pb.CheckpointRequest(env_id=there, idempotency_key="c"), timeout=60)
    again = pb.RestoreRequest(env_id=here, sequence=1, idempotency_key="x", checkpoint_id=kept.checkpoint_id)
    restored = await envs(first).Restore(again, timeout=60)
    assert restored.observation == stepped.observation != begun_there.observation
    look = pb.StepRequest(
        env_id=here, sequence=2, idempotency_key="l", action="down" if env == "frozen_lake" else "cat file"
    )
    assert "kept" in (await envs(first).Step(look, timeout=60)).observation or env == "frozen_lake"
    for unknown in (kept.checkpoint_id + "0", "e00000000-1", "x" * 5000, ""):
        wrong = pb.RestoreRequest(env_id=here, sequence=3, idempotency_key="y", checkpoint_id=unknown)
        assert (await refusal(envs(first).Restore(wrong)))[0] == "NOT_FOUND"


async def test_checkpoints_are_lent_to_replicas_alone(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    there = await made(first, "a")
    await begun(first, there)
    kept = await envs(first).Checkpoint(pb.CheckpointRequest(env_id=there, idempotency_key="c"))
    for server in (first, second):
        asked = server.channel.unary_unary(f"/{PEERS}/Checkpoint")
        assert (await refusal(asked(kept.checkpoint_id.encode())))[0] == "NOT_FOUND"
        forged = ((HEADER, "e30=.00"),)
        assert (await refusal(asked(kept.checkpoint_id.encode(), metadata=forged)))[0] == "UNAUTHENTICATED"
    async with await open_store(fleet.url) as store:
        assert isinstance(store, PostgresStore)
        (member,) = [it for it in (await Members(store).all()).values() if there.startswith(it.environments)]
        passes, path = Passes(await Members(store).secret()), f"/{PEERS}/Checkpoint"
    asked = first.channel.unary_unary(path)
    for tenant, outcome in (("", b"g"), ("somebody", b"")):
        signed = passes.sign(to=member.id, method=path, caller=Admitted(tenant))
        call = asked(kept.checkpoint_id.encode(), metadata=((HEADER, signed),))
        if outcome:
            assert (await call).startswith(outcome)
        else:
            assert (await refusal(call))[0] == "NOT_FOUND"


async def test_a_batch_is_answered_by_all_of_its_replicas(fleet: Fleet) -> None:
    servers = [await fleet.start() for _ in range(3)]
    homes = [(server, await made(server, f"k{n}")) for n in range(4) for server in servers]
    ids = [env_id for _, env_id in homes]
    resets = [
        pb.ResetRequest(env_id=env_id, sequence=1, idempotency_key="r", task_id="train/0", seed=0)
        for env_id in ids
    ]
    found = await items(envs(servers[0]).ResetMany(pb.ResetManyRequest(items=resets)))
    assert sorted(item.env_id for item in found) == sorted(ids)
    assert len({item.observation for item in found}) == 1
    steps = [*map(step, ids), step("e00000000-1"), step("nonsense")]
    found = await items(envs(servers[1]).StepMany(pb.StepManyRequest(items=steps)))
    answers = {item.env_id: item.error.code for item in found}
    assert answers == {**dict.fromkeys(ids, ""), "e00000000-1": "not_found", "nonsense": "not_found"}
    elsewhere = [env_id for server, env_id in homes if server is not servers[2]]
    found = await items(
        envs(servers[2]).StepMany(pb.StepManyRequest(items=[step(it, 3) for it in elsewhere]))
    )
    assert sorted(item.env_id for item in found) == sorted(elsewhere)
    closes = [pb.CloseRequest(env_id=env_id) for env_id in ids]
    assert len(await items(envs(servers[1]).CloseMany(pb.CloseManyRequest(items=closes)))) == len(ids)
    assert not any(item.error.code for item in found)


async def test_hostile_batches_cost_their_caller_alone(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    here, there = await made(second, "a"), await made(first, "b")
    for env_id in (here, there):
        await begun(second, env_id)
    foreign = [step(f"e{number:08x}-1") for number in range(5000)]
    found = await items(envs(second).StepMany(pb.StepManyRequest(items=[*foreign, step(here), step(there)])))
    assert [item.env_id for item in found if not item.error.code] in ([here, there], [there, here])
    assert len(found) == 5002
    for some in ([here, there], [here], [there]):
        wrong = pb.StepManyRequest(items=[step(each, 3) for each in some], item_timeout_s=-1)
        assert (await refusal(items(envs(second).StepMany(wrong))))[0] == "INVALID_ARGUMENT"
    twice = pb.StepManyRequest(items=[step(here, 3), step(here, 3), step(there, 3), step(there, 3)])
    found = await items(envs(second).StepMany(twice))
    assert sorted(item.env_id for item in found) == sorted([here, here, there, there])


async def test_a_key_makes_one_environment_whichever_replicas_get_it(fleet: Fleet) -> None:
    servers = [await fleet.start() for _ in range(3)]
    for round_ in range(10):
        keys = [f"{round_}-{n}" for n in range(8)]
        single = [made(server, keys[0]) for server in servers for _ in range(2)]
        asked = [pb.MakeRequest(env="frozen_lake", idempotency_key=key) for key in keys]
        many = [_made_many(server, asked[turn:] + asked[:turn]) for turn, server in enumerate(servers)]
        ones, lots = await asyncio.gather(asyncio.gather(*single), asyncio.gather(*many))
        assert len(set(ones)) == 1
        for turn, found in enumerate(lots):
            assert found[-turn or len(found) :] + found[: -turn or len(found)] == lots[0]
        assert lots[0][0] == ones[0]
        assert len(set(lots[0])) == len(keys)


async def _made_many(server: Server, asked: list[pb.MakeRequest]) -> list[str]:
    found: dict[int, str] = {}
    async for chunk in envs(server).MakeMany(pb.MakeManyRequest(items=asked)):
        for index, item in zip(chunk.indices, chunk.items, strict=True):
            assert not item.error.code, item.error.message
            found[index] = item.env_id
    return [found[index] for index in range(len(asked))]


async def test_keys_are_free_again_when_their_environment_is_closed(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    env_id = await made(first, "a")
    async with await open_store(fleet.url) as store:
        assert isinstance(store, PostgresStore)
        count = "SELECT count(*) FROM rock_claims"
        assert (await store.fetch(count))[0][0] == 1
        await envs(second).Close(pb.CloseRequest(env_id=env_id))
        wrong = [pb.MakeRequest(env="no such env", idempotency_key=f"w{n}") for n in range(100)]
        refused = await items(envs(second).MakeMany(pb.MakeManyRequest(items=wrong)))
        assert {item.error.code for item in refused} == {"unknown_name"}
        async with asyncio.timeout(30):
            while (await store.fetch(count))[0][0]:  # noqa: ASYNC110  # nothing announces it
                await asyncio.sleep(0.05)
    assert await made(second, "a") != env_id


async def test_keys_of_calls_that_were_cut_off_are_forgotten(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()

    async def cut_off(number: int) -> None:
        wanted = [pb.MakeRequest(env="no such env", idempotency_key=f"{number}-{n}") for n in range(500)]
        call = envs(second).MakeMany(pb.MakeManyRequest(items=wanted))
        answer = asyncio.ensure_future(anext(aiter(call)))
        await asyncio.sleep(number * 0.01)
        call.cancel()
        await asyncio.gather(answer, return_exceptions=True)

    kept = await made(first, "kept")
    await asyncio.gather(*(cut_off(number) for number in range(60)))
    async with await open_store(fleet.url) as store:
        assert isinstance(store, PostgresStore)
        async with asyncio.timeout(60):
            while (await store.fetch("SELECT count(*) FROM rock_claims"))[0][0] > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert await made(second, "kept") == kept


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_environments_of_a_replica_that_is_gone_are_told_soon(
    fleet: Fleet, how: signal.Signals
) -> None:
    first, second = await fleet.start(), await fleet.start()
    lost, kept = await made(first, "a"), await made(second, "b")
    for env_id in (lost, kept):
        await begun(second, env_id)
    first.process.send_signal(how)
    try:
        asked = pb.StepManyRequest(items=[step(lost), step(kept)])
        async with asyncio.timeout(3 * LEASE_S):
            answers = {item.env_id: item.error.code for item in await items(envs(second).StepMany(asked))}
        assert answers[kept] == ""
        assert answers[lost] in ("unavailable", "not_found")
        again = ""
        async with asyncio.timeout(3 * LEASE_S):
            while not again:  # the key is the dead one's until its lease ends
                with contextlib.suppress(grpc.aio.AioRpcError):
                    again = await made(second, "a")
        assert again != lost
        await begun(second, again)
    finally:
        if how == signal.SIGSTOP:
            first.process.send_signal(signal.SIGCONT)


async def test_a_client_plays_through_the_wrong_replica(fleet: Fleet) -> None:
    first, second = await fleet.start(), await fleet.start()
    async with Client(first.address) as near, Client(second.address) as far:
        env = await near.make("frozen_lake", "{}")
        other = type(env)(
            far, env_id=env.env_id, name=env.name, version=env.version, params_json=env.params_json
        )
        observation, _, _ = await other.reset("train/0", 0)
        assert "P" in observation
        result = await other.step("right")
        assert result.observation != observation
        await other.close()


async def test_only_replicas_of_the_store_can_vouch_and_only_one_hop_is_made(fleet: Fleet) -> None:
    tokens = fleet.folder / "tokens.json"
    entry, secret = new_token("blue", ["env"])
    add_token(tokens, entry)
    options = (f"--tokens={tokens}",)
    first, second = await fleet.start(*options), await fleet.start(*options)
    head = (("authorization", f"Bearer {secret}"),)
    env_id = (
        await envs(first).Make(pb.MakeRequest(env="frozen_lake", idempotency_key="a"), metadata=head)
    ).env_id
    asked = pb.ResetRequest(env_id=env_id, sequence=1, idempotency_key="r", task_id="train/0", seed=0)
    await envs(second).Reset(asked, metadata=head)
    forged = Passes(b"x" * 32).sign(to="somebody", method=STEP, caller=Admitted("blue"))
    code, _, _ = await refusal(envs(second).Step(step(env_id), metadata=((HEADER, forged),)))
    assert code == "UNAUTHENTICATED"
    async with await open_store(fleet.url) as store:
        assert isinstance(store, PostgresStore)
        members = Members(store)
        passes, ids = Passes(await members.secret()), sorted(await members.all())
    for tenant, answer in (("red", "NOT_FOUND"), ("", "UNAUTHENTICATED")):
        for member in ids:
            signed = passes.sign(to=member, method=STEP, caller=Admitted(tenant))
            codes = {
                (await refusal(envs(server).Step(step(env_id), metadata=((HEADER, signed),))))[0]
                for server in (first, second)
            }
            assert codes <= {answer, "UNAUTHENTICATED"}
    await until(lambda: first.process.poll() is None)
