"""Tokens and tenants over real sockets: who gets in, how far, and that nobody else harms the server."""

from __future__ import annotations

import asyncio
import socket
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from secure_servers import OFFER, SERVER, serving, token

import rock_env
from rock_env.client import AsyncEnv, Client, Credentials
from rock_env.client.admin import AdminClient
from rock_env.env import StepResult
from rock_env.errors import (
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from rock_env.proto.v1 import env_pb2, env_pb2_grpc, sandbox_pb2
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub
from rock_env.security.token_file import revoke_token
from rock_env.wire.channel import target


@dataclass(frozen=True)
class Guarded:
    """A running server and its token file."""

    address: str
    tokens: Path
    log: Path

    def token(self, tenant: str, *scopes: str, **more: float) -> str:
        return token(self.tokens, tenant, *scopes, **more)

    @asynccontextmanager
    async def client(self, text: str) -> AsyncIterator[Client]:
        async with Client(self.address, credentials=Credentials(token=text), retry_for_s=0) as connected:
            yield connected

    @asynccontextmanager
    async def channel(self) -> AsyncIterator[grpc.aio.Channel]:
        async with grpc.aio.insecure_channel(target(self.address)) as channel:
            yield channel


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    tokens = folder / "tokens.json"
    token(tokens, "first", "env")
    with serving([*SERVER, f"--tokens={tokens}", *OFFER], folder) as (_, address):
        yield Guarded(address, tokens, folder / "log")


def bearer(text: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {text}"),)


# -- tokens


async def test_a_token_with_the_scope_gets_in(guarded: Guarded) -> None:
    async with guarded.client(guarded.token("blue", "env")) as client:
        env = await client.make("toy")
        await env.reset("train/0", 1)
        assert (await env.step("go")).info == {"steps": 1}
        first, second = await asyncio.gather(client.make("toy"), client.make("toy"))  # a batch
        await asyncio.gather(first.reset("train/0", 1), second.reset("train/0", 1))
        results = await client.step_many([(first, "go"), (second, "go")])
        assert results[0] == results[1]


def test_the_synchronous_face_takes_a_token(guarded: Guarded) -> None:
    with rock_env.connect(guarded.address, token=guarded.token("blue", "env")) as connection:
        assert "index" in connection.make("toy").reset(1)[1]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: "nonsense",
        lambda text: text[:-1],
        lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"),
        lambda text: f"rock_{'f' * 12}_{'f' * 64}",
        lambda text: "x" * 4000,
    ],
    ids=["none", "malformed", "short", "wrong secret", "unknown id", "long"],
)
async def test_no_other_token_does(guarded: Guarded, spoil: Callable[[str], str]) -> None:
    async with guarded.client(spoil(guarded.token("blue", "env"))) as client:
        with pytest.raises(Unauthenticated):
            await client.make("toy")
        with pytest.raises(Unauthenticated):
            await client.list_envs()
        results = await asyncio.gather(client.make("toy"), client.make("toy"), return_exceptions=True)
        assert [type(result) for result in results] == [Unauthenticated, Unauthenticated]


async def test_expiry_and_revocation_count_from_the_next_call(guarded: Guarded) -> None:
    short = guarded.token("blue", "env", expires_at=time.time() - 1, now=1.0)
    async with guarded.client(short) as client:
        with pytest.raises(Unauthenticated, match="expired at"):
            await client.make("toy")
    text = guarded.token("blue", "env")
    async with guarded.client(text) as client:
        env = await client.make("toy")
        successor = guarded.token("blue", "env")  # rotation: both work until the old one is revoked
        async with guarded.client(successor) as later:
            await env.reset("train/0", 1)
            revoke_token(guarded.tokens, text.split("_")[1])
            with pytest.raises(Unauthenticated, match="revoked"):
                await env.step("go")
            assert await later.make("toy")


@pytest.mark.parametrize("scope", ["sandbox", "admin"])
async def test_a_token_without_the_scope_is_told_which(guarded: Guarded, scope: str) -> None:
    async with guarded.client(guarded.token("blue", scope)) as client:
        with pytest.raises(PermissionDenied, match=f"holds the scopes {scope}, and this needs env"):
            await client.make("toy")


async def test_each_service_needs_its_scope(guarded: Guarded) -> None:
    async with guarded.channel() as channel:
        sandboxes = SandboxServiceStub(channel)
        create = sandbox_pb2.CreateSandboxRequest()
        for scopes in (["env"], ["admin"], ["env", "admin"]):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await sandboxes.Create(create, metadata=bearer(guarded.token("blue", *scopes)))
            assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert dict(caught.value.trailing_metadata())["rock-error-code"] == "permission_denied"
        # A stream that never sends anything is refused all the same.
        call = sandboxes.Exec(metadata=bearer(guarded.token("blue", "env")))
        assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
        unknown = channel.unary_unary("/rock.v1.Nothing/Here")
        for scopes, code in ((["env"], "PERMISSION_DENIED"), (["admin"], "UNIMPLEMENTED")):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await unknown(b"", metadata=bearer(guarded.token("blue", *scopes)))
            assert caught.value.code().name == code


async def test_health_is_open_and_reflection_is_not(guarded: Guarded) -> None:
    listing = reflection_pb2.ServerReflectionRequest(list_services="")
    async with guarded.channel() as channel:
        reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert reply.status == health_pb2.HealthCheckResponse.SERVING
        reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        # Nothing is written to these: gRPC's client reports INTERNAL where the refusal overtakes its write.
        assert await reflect().code() is grpc.StatusCode.UNAUTHENTICATED
        env_token = bearer(guarded.token("blue", "env", "sandbox"))
        assert await reflect(metadata=env_token).code() is grpc.StatusCode.PERMISSION_DENIED
        call = reflect(iter([listing]), metadata=bearer(guarded.token("blue", "admin")))
        names = [service.name async for reply in call for service in reply.list_services_response.service]
        assert "rock.v1.AdminService" in names


async def test_the_load_is_the_operators_to_see(guarded: Guarded) -> None:
    async with guarded.client(guarded.token("blue", "env")) as client:
        await client.make("toy")
        for scopes, error in (([], Unauthenticated), (["env"], PermissionDenied)):
            text = guarded.token("blue", *scopes) if scopes else ""
            async with AdminClient(guarded.address, credentials=Credentials(text)) as admin:
                assert await admin.serving()
                with pytest.raises(error):
                    await admin.capacity()
        async with AdminClient(
            guarded.address, credentials=Credentials(guarded.token("op", "admin"))
        ) as admin:
            load = await admin.capacity()
    assert load.envs_in_workers >= 1
    assert load.max_workers == 1
    assert load.workers >= 1  # other tests of this server had tenants of their own


async def test_a_broken_token_file_closes_the_door_and_a_mended_one_opens_it(guarded: Guarded) -> None:
    text = guarded.token("blue", "env")
    content = guarded.tokens.read_bytes()
    async with guarded.client(text) as client:
        env = await client.make("toy")
        guarded.tokens.write_bytes(b"{")
        with pytest.raises(Unavailable, match="admits nobody") as caught:
            await env.reset("train/0", 1)
        assert str(guarded.tokens) not in str(caught.value)
        guarded.tokens.write_bytes(content)
        assert await client.make("toy")


# -- rubbish


async def test_headers_beyond_reason_do_no_harm(guarded: Guarded) -> None:
    text = guarded.token("blue", "env")
    async with guarded.channel() as channel:
        stub = env_pb2_grpc.EnvServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.ListEnvs(env_pb2.ListEnvsRequest(), metadata=bearer("x" * 1_000_000))
        for headers in (
            bearer(text) + bearer(text),
            (("authorization", ""),),
            (("authorization", f"Basic {text}"),),
            (("authorization-bin", f"Bearer {text}".encode()),),
            (("x-authorization", f"Bearer {text}"),),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.ListEnvs(env_pb2.ListEnvsRequest(), metadata=headers)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert (await stub.ListEnvs(env_pb2.ListEnvsRequest(), metadata=bearer(text))).envs


def raw_call(address: str, authorization: bytes) -> bytes:
    """Call ListEnvs with a header no client library would send; return what the server says until it is done."""

    def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
        return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload

    def header(name: bytes, value: bytes) -> bytes:
        return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value  # literal, shorter than 127

    headers = [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", b"/rock.v1.EnvService/ListEnvs"),
        (b":authority", b"x"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"authorization", authorization),
    ]
    request = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)
    request += frame(1, 4, 1, b"".join(header(*pair) for pair in headers)) + frame(0, 1, 1, bytes(5))
    host, _, port = target(address).rpartition(":")
    said = b""
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request)
        while b"rock-error-code" not in said and (more := connection.recv(65536)):
            said += more
    return said


@pytest.mark.parametrize("value", [b"Bearer r\xf6ck", b"Bearer \xc3\xa9", b"\xff\xfe", b"Bearer a\x01b"])
async def test_bytes_that_are_no_text_are_refused(guarded: Guarded, value: bytes) -> None:
    said = await asyncio.to_thread(raw_call, guarded.address, value)
    assert b"rock.v1" not in said  # not the answer to ListEnvs, whatever else
    async with guarded.client(guarded.token("blue", "env")) as client:
        assert await client.list_envs()


async def test_refusals_are_logged_without_the_secret(guarded: Guarded) -> None:
    text = guarded.token("blue", "sandbox")
    async with guarded.client(text) as client:
        with pytest.raises(PermissionDenied):
            await client.make("toy")
    log = guarded.log.read_text()
    assert f"code=permission_denied cause=token {text.split('_')[1]}" in log
    assert text.split("_")[2] not in log


# -- tenants


@pytest.fixture
async def blue(guarded: Guarded) -> AsyncIterator[Client]:
    async with guarded.client(guarded.token("blue", "env")) as client:
        yield client


@pytest.fixture
async def red(guarded: Guarded) -> AsyncIterator[Client]:
    async with guarded.client(guarded.token("red", "env")) as client:
        yield client


def taken(client: Client, env: AsyncEnv) -> AsyncEnv:
    """Return a handle of `client`'s on somebody's environment: its id was guessed or overheard."""
    return AsyncEnv(
        client, env_id=env.env_id, name=env.name, version=env.version, params_json=env.params_json
    )


@pytest.mark.parametrize("kind", ["toy", "toy_box"])
async def test_another_tenants_environment_does_not_exist(blue: Client, red: Client, kind: str) -> None:
    env = await blue.make(kind)
    await env.reset("train/0", 1)

    def unknown(env_id: str) -> str:
        return f"unknown environment id '{env_id}'"

    for call in (
        lambda thief: thief.reset("train/0", 1),
        lambda thief: thief.step("true"),
        lambda thief: thief.evaluate(),
        lambda thief: thief.checkpoint(),
        lambda thief: thief.fork(1),
    ):
        with pytest.raises(NotFound, match=unknown(env.env_id)):
            await call(taken(red, env))
    own = await red.make(kind)
    await own.reset("train/0", 1)
    stolen, kept = await red.step_many([(taken(red, env), "true"), (own, "true")])
    assert isinstance(stolen, NotFound)
    assert isinstance(kept, StepResult)
    await taken(red, env).close()  # as closing any unknown one: no error, no effect
    await asyncio.gather(taken(red, env).close(), own.close())  # in a batch too
    assert await env.step("true")
    await taken(blue, env).close()  # its owner's other handle
    with pytest.raises(NotFound):
        await env.step("true")


async def test_another_tenants_checkpoint_does_not_exist(blue: Client, red: Client) -> None:
    ours, theirs = await blue.make("toy"), await red.make("toy")
    await ours.reset("train/0", 1)
    await theirs.reset("train/0", 1)
    checkpoint = await ours.checkpoint()
    with pytest.raises(NotFound, match="unknown checkpoint"):
        await theirs.restore(checkpoint)
    await ours.restore(checkpoint)
    (fork,) = await ours.fork(1)
    with pytest.raises(NotFound):
        await taken(red, fork).step("go")
    assert await fork.step("go")


async def test_equal_keys_of_two_tenants_are_two_keys(guarded: Guarded) -> None:
    make = env_pb2.MakeRequest(env="toy", params_json="{}", idempotency_key="k")
    create = sandbox_pb2.CreateSandboxRequest(idempotency_key="k")
    ids: dict[str, list[str]] = {}
    async with guarded.channel() as channel:
        envs, sandboxes = env_pb2_grpc.EnvServiceStub(channel), SandboxServiceStub(channel)
        for tenant in ("cyan", "pink", "cyan"):
            who = bearer(guarded.token(tenant, "env", "sandbox"))
            made = [
                (await envs.Make(make, metadata=who)).env_id,
                (await sandboxes.Create(create, metadata=who)).id,
            ]
            assert ids.setdefault(tenant, made) == made  # also with another token of the same tenant
    assert not set(ids["cyan"]) & set(ids["pink"])


async def test_another_tenants_sandbox_does_not_exist(guarded: Guarded) -> None:
    ours, theirs = (bearer(guarded.token(tenant, "sandbox")) for tenant in ("blue", "red"))
    async with guarded.channel() as channel:
        stub = SandboxServiceStub(channel)
        box = await stub.Create(sandbox_pb2.CreateSandboxRequest(), metadata=ours)
        assert box.owner == "blue"
        start = sandbox_pb2.ExecRequest(start=sandbox_pb2.ExecStart(sandbox_id=box.id, argv=["touch", "x"]))
        calls: list[Callable[[Any], Any]] = [
            lambda who: stub.Get(sandbox_pb2.GetSandboxRequest(id=box.id), metadata=who),
            lambda who: stub.Stat(sandbox_pb2.StatRequest(sandbox_id=box.id, path="."), metadata=who),
            lambda who: stub.ReadFile(sandbox_pb2.ReadFileRequest(sandbox_id=box.id, path="x"), metadata=who),
            lambda who: stub.Delete(sandbox_pb2.DeleteSandboxRequest(id=box.id), metadata=who),
        ]
        call = stub.Exec(metadata=theirs)
        await call.write(start)
        assert await call.code() is grpc.StatusCode.NOT_FOUND
        events = [event async for event in stub.Exec(iter([start]), metadata=ours)]
        assert events[-1].exit.exit_code == 0
        for ask in calls:
            assert await ask(theirs).code() is grpc.StatusCode.NOT_FOUND
        listing = sandbox_pb2.ListSandboxesRequest()
        assert box.id not in [each.id for each in (await stub.List(listing, metadata=theirs)).sandboxes]
        assert box.id in [each.id for each in (await stub.List(listing, metadata=ours)).sandboxes]
        for ask in calls:
            assert await ask(ours).code() is grpc.StatusCode.OK


async def test_a_unix_socket_is_its_owners_and_may_ask_for_tokens_too(tmp_path: Path) -> None:
    text = token(tmp_path / "tokens.json", "blue", "env")
    command = [*SERVER, f"--listen=unix://{tmp_path}/socket"]
    for options in ([], [f"--tokens={tmp_path}/tokens.json"]):
        with serving([*command, *options, *OFFER], tmp_path) as (_, address):
            assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o600
            async with Client(address, credentials=Credentials(text)) as client:
                assert await client.make("toy")
            async with Client(address, credentials=Credentials()) as client:
                if options:
                    with pytest.raises(Unauthenticated):
                        await client.make("toy")
                else:
                    assert await client.make("toy")


async def test_the_sandbox_of_an_environment_is_its_tenants_and_needs_the_scope(guarded: Guarded) -> None:
    both, env_only = guarded.token("green", "env", "sandbox"), guarded.token("green", "env")
    other = guarded.token("grey", "env", "sandbox")
    async with guarded.client(both) as owner, guarded.client(env_only) as player:
        env = await owner.make("toy_box")
        await env.reset("train/0", 4)
        assert await (await env.sandbox()).files.read("seed") == b"4"
        bare = taken(player, env)
        bare.sandbox_id = env.sandbox_id
        with pytest.raises(PermissionDenied, match="sandbox"):
            await bare.sandbox()
        async with guarded.client(other) as stranger:
            foreign = taken(stranger, env)
            foreign.sandbox_id = env.sandbox_id
            with pytest.raises(NotFound, match="no sandbox"):
                await foreign.sandbox()
        await env.close()


async def test_work_in_the_sandbox_of_an_environment_keeps_it(tmp_path: Path) -> None:
    with serving([*SERVER, "--insecure", *OFFER, "--idle-timeout-s=1"], tmp_path) as (_, address):
        async with Client(address, credentials=Credentials()) as client:
            env, idle = await client.make("toy_box"), await client.make("toy_box")
            await asyncio.gather(env.reset("train/0", 4), idle.reset("train/0", 4))
            box, other = await env.sandbox(), await idle.sandbox()
            worked = await box.exec(["sh", "-c", "sleep 2.5; echo done > log"])
            assert worked.ok
            assert (await env.evaluate()).reward == 1.0
            with pytest.raises(NotFound, match="idle"):
                await idle.evaluate()
            assert other.id != box.id


async def test_an_idle_environment_is_closed_whosever_it_is(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    who = bearer(token(tokens, "blue", "env"))
    with serving([*SERVER, f"--tokens={tokens}", *OFFER, "--idle-timeout-s=0.2"], tmp_path) as (_, address):
        async with grpc.aio.insecure_channel(target(address)) as channel:
            stub = env_pb2_grpc.EnvServiceStub(channel)
            made = await stub.Make(env_pb2.MakeRequest(env="toy", params_json="{}"), metadata=who)
        operator = Credentials(token(tokens, "op", "admin"))
        async with AdminClient(address, credentials=operator) as admin:
            while (await admin.capacity()).envs_in_workers:  # noqa: ASYNC110 - its timer is in another process
                await asyncio.sleep(0.05)
    assert made.env_id
