"""Servers of one store that reach each other over the network alone: as on several machines, each with its own folder."""

from __future__ import annotations

import asyncio
import datetime
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
from integration.replica_fleet import Fleet, Server, refusal, run, running_fleet

from rock_env.proto.v1 import env_pb2
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.env_pb2_grpc import EnvServiceStub
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub
from rock_env.server.replicas.trust import issuing
from rock_env.server.replicas.trust.certificates import Identity, identity
from rock_env.store.open import open_store
from rock_env.store.postgres.members import Members
from rock_env.store.postgres.records import PostgresStore


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
async def fleet(new_database: Callable[[], str]) -> AsyncIterator[Fleet]:
    async with running_fleet(new_database()) as made:
        yield made


async def machine(fleet: Fleet, name: str, *more: str) -> Server:
    """Start a server that shares nothing with the others but the store and the network."""
    own = [f"--state={fleet.folder}/{name}", f"--node={name}", f"--peers=127.0.0.1:{free_port()}"]
    return await fleet.start("--insecure", *own, *more)


@asynccontextmanager
async def members_of(fleet: Fleet) -> AsyncIterator[tuple[PostgresStore, Members]]:
    async with await open_store(fleet.url) as store:
        assert isinstance(store, PostgresStore)
        yield store, Members(store)


async def test_any_machine_answers_for_what_is_on_another(fleet: Fleet) -> None:
    first, second = await machine(fleet, "a"), await machine(fleet, "b")
    box = (await first.boxes.Create(pb.CreateSandboxRequest())).id
    assert await run(second.boxes, box, "echo over there > file; cat file") == b"over there\n"
    watch = second.boxes.WatchFiles(pb.WatchFilesRequest(sandbox_id=box, path="."))
    async with asyncio.timeout(20):
        await watch.initial_metadata()  # it says that it stands before anything happens
        await run(first.boxes, box, "echo more > other")
        assert (await watch.read()).path
    watch.cancel()
    there, here = EnvServiceStub(first.channel), EnvServiceStub(second.channel)
    made = (await there.Make(env_pb2.MakeRequest(env="frozen_lake", idempotency_key="k"))).env_id
    reset = env_pb2.ResetRequest(env_id=made, sequence=1, idempotency_key="r", task_id="train/0", seed=0)
    assert (await here.Reset(reset)).observation
    await second.boxes.Delete(pb.DeleteSandboxRequest(id=box))
    assert not (await first.boxes.List(pb.ListSandboxesRequest())).sandboxes
    assert not [*(fleet.folder / "a").glob("peers/*.sock")], "no socket: the network alone"


async def test_a_machine_that_dies_is_told_of_within_seconds(fleet: Fleet) -> None:
    first, second = await machine(fleet, "a"), await machine(fleet, "b")
    box = (await first.boxes.Create(pb.CreateSandboxRequest())).id
    first.kill()
    await first.ended()
    loop = asyncio.get_running_loop()
    began = loop.time()
    said = await refusal(second.boxes.Stat(pb.StatRequest(sandbox_id=box, path="."), timeout=30))
    assert said[0] == "UNAVAILABLE"
    assert float(said[2]["rock-retry-after-s"]) > 0
    assert loop.time() - began < 15, "it does not wait for the caller's deadline"


async def test_a_server_without_a_folder_plays_games_for_all(fleet: Fleet) -> None:
    first = await machine(fleet, "a", "--state=")
    second = await machine(fleet, "b", "--state=")
    there, here = EnvServiceStub(first.channel), EnvServiceStub(second.channel)
    made = (await there.Make(env_pb2.MakeRequest(env="frozen_lake", idempotency_key="k"))).env_id
    assert (await here.Make(env_pb2.MakeRequest(env="frozen_lake", idempotency_key="k"))).env_id == made
    reset = env_pb2.ResetRequest(env_id=made, sequence=1, idempotency_key="r", task_id="train/0", seed=0)
    assert (await here.Reset(reset)).observation


def stranger(options: list[tuple[str, str]]) -> Identity:
    """Make an identity by an authority of its own, with the name that is expected."""
    day = datetime.timedelta(days=1)
    key, authority = issuing.authority("rock store", day, day)
    return Identity(authority, *issuing.issued(key, authority, options[0][1], day, day))


async def test_nobody_else_is_let_in(fleet: Fleet) -> None:
    await machine(fleet, "a")
    async with members_of(fleet) as (_, members):
        (member,) = (await members.all()).values()
        own = await identity(members, "e00000000")
    address, named = member.address.removeprefix("grpcs://"), Identity.options(member)
    other = stranger(named)
    without = grpc.ssl_channel_credentials(root_certificates=own.authority)
    forged = grpc.ssl_channel_credentials(own.authority, other.key, other.certificate)
    for credentials in (None, without, forged):
        if credentials is None:
            channel = grpc.aio.insecure_channel(address)
        else:
            channel = grpc.aio.secure_channel(address, credentials, options=named)
        async with channel:
            call = SandboxServiceStub(channel).List(pb.ListSandboxesRequest(), timeout=10)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    async with grpc.aio.secure_channel(address, own.client(), options=named) as channel:
        assert (await SandboxServiceStub(channel).List(pb.ListSandboxesRequest(), timeout=10)) is not None
    async with grpc.aio.secure_channel(  # it is let in, but would talk to no other member than it means to
        address, own.client(), options=[("grpc.ssl_target_name_override", "e11111111.replica.rock.internal")]
    ) as channel:
        with pytest.raises(grpc.aio.AioRpcError):
            await SandboxServiceStub(channel).List(pb.ListSandboxesRequest(), timeout=10)


async def test_who_answers_at_a_members_address_must_be_that_member(fleet: Fleet) -> None:
    first = await machine(fleet, "a")
    box = (await first.boxes.Create(pb.CreateSandboxRequest())).id
    asked: list[str] = []

    async with members_of(fleet) as (store, members):
        (member,) = [it for it in (await members.all()).values() if it.node == "a"]
        impostor = grpc.aio.server()
        impostor.add_generic_rpc_handlers((Recorder(asked),))
        port = impostor.add_secure_port("127.0.0.1:0", stranger(Identity.options(member)).server())
        await impostor.start()
        await store.fetch(
            "UPDATE rock_replicas SET address = $1 WHERE id = $2 RETURNING 1",
            f"grpcs://127.0.0.1:{port}",
            member.id,
        )
        second = await machine(fleet, "c")  # knows no other address of the first
        said = await refusal(second.boxes.Stat(pb.StatRequest(sandbox_id=box, path="."), timeout=30))
        assert said[0] == "UNAVAILABLE"
        assert "cannot be reached" in said[1]
        assert not asked
        await impostor.stop(None)


class Recorder(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc is not typed
    """Notes what is asked."""

    def __init__(self, asked: list[str]) -> None:
        self._asked = asked

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> None:
        self._asked.append(handler_call_details.method)


async def test_a_server_without_peers_says_what_to_do(fleet: Fleet) -> None:
    first = await machine(fleet, "a")
    second = await fleet.start("--insecure", f"--state={fleet.folder}/b", "--node=b")
    box = (await first.boxes.Create(pb.CreateSandboxRequest())).id
    said = await refusal(second.boxes.Stat(pb.StatRequest(sandbox_id=box, path="."), timeout=30))
    assert said[0] == "UNAVAILABLE"
    assert "Start all servers of a store with --peers" in said[1]


async def test_servers_that_start_at_once_agree_on_one_authority(new_database: Callable[[], str]) -> None:
    async with await open_store(new_database()) as store:
        assert isinstance(store, PostgresStore)
        members = Members(store)
        made = await asyncio.gather(*(identity(members, f"e{number:08x}") for number in range(6)))
    assert len({each.authority for each in made}) == 1
    assert len({each.key for each in made}) == 6
