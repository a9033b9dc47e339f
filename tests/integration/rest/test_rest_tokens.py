"""A sandbox's own tokens, over both transports: what they open, what not, and that they end with the box."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import pytest
from rest_servers import RestServer, guarded_rest
from secure_servers import token

from rock_env.client import Credentials
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with guarded_rest(tmp_path_factory.mktemp("tokens")) as running:
        yield running


class Caller:
    """A stub that shows a token with each call."""

    def __init__(self, stub: Any, text: str) -> None:
        self._stub = stub
        self._metadata = (("authorization", f"Bearer {text}"),)

    def as_(self, text: str) -> Caller:
        return Caller(self._stub, text)

    def __getattr__(self, name: str) -> Any:
        return lambda *request: getattr(self._stub, name)(*request, metadata=self._metadata)


@pytest.fixture(params=["grpc", "rest"])
async def owner(server: RestServer, request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    address = server.url if request.param == "rest" else server.grpc
    async with Credentials().channel(address) as channel:
        yield Caller(SandboxServiceStub(channel), server.key)


async def refused(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return str(caught.value.code().name)


async def says(caller: Caller, sandbox_id: str, *argv: str) -> bytes:
    start = pb.ExecStart(sandbox_id=sandbox_id, argv=argv)
    return b"".join([event.stdout.data async for event in caller.Exec(iter([pb.ExecRequest(start=start)]))])


async def test_a_sandboxs_token_opens_that_sandbox_only(owner: Caller) -> None:
    made = await owner.Create(pb.CreateSandboxRequest(issue_token=True))
    other = await owner.Create(pb.CreateSandboxRequest())
    assert made.token.startswith(f"rock_{made.id}_")
    assert not other.token
    assert not (await owner.Get(pb.GetSandboxRequest(id=made.id))).token, "it is told once"
    inside = owner.as_(made.token)
    assert await says(inside, made.id, "echo", "hi") == b"hi\n"
    await inside.WriteFile(iter([pb.WriteFileRequest(sandbox_id=made.id, path="f", data=b"x")]))
    assert (await inside.Stat(pb.StatRequest(sandbox_id=made.id, path="f"))).size == 1
    assert await refused(says(inside, other.id, "true")) == "PERMISSION_DENIED"
    assert await refused(inside.Stat(pb.StatRequest(sandbox_id=other.id, path="."))) == "PERMISSION_DENIED"
    process = await owner.StartProcess(
        pb.StartProcessRequest(start=pb.ExecStart(sandbox_id=other.id, argv=["sleep", "600"]))
    )
    signal = pb.SignalProcessRequest(process_id=process.process_id, signal=15)
    assert await refused(inside.SignalProcess(signal)) == "PERMISSION_DENIED"
    for call in (
        inside.Create(pb.CreateSandboxRequest()),
        inside.Get(pb.GetSandboxRequest(id=made.id)),
        inside.List(pb.ListSandboxesRequest()),
        inside.Delete(pb.DeleteSandboxRequest(id=made.id)),
        inside.Renew(pb.RenewSandboxRequest(id=made.id)),
        inside.IssueToken(pb.IssueSandboxTokenRequest(sandbox_id=made.id)),
    ):
        assert await refused(call) == "PERMISSION_DENIED"


async def test_a_token_ends_with_its_sandbox(owner: Caller) -> None:
    made = await owner.Create(pb.CreateSandboxRequest())
    issued = [
        (await owner.IssueToken(pb.IssueSandboxTokenRequest(sandbox_id=made.id))).token for _ in range(2)
    ]
    assert len(set(issued)) == 2
    for text in issued:
        assert await says(owner.as_(text), made.id, "echo", "hi") == b"hi\n"
    forged = issued[0][:-1] + ("0" if issued[0][-1] != "0" else "1")
    assert await refused(says(owner.as_(forged), made.id, "true")) == "UNAUTHENTICATED"
    await owner.Delete(pb.DeleteSandboxRequest(id=made.id))
    assert await refused(says(owner.as_(issued[0]), made.id, "true")) == "UNAUTHENTICATED"
    gone = pb.IssueSandboxTokenRequest(sandbox_id=made.id)
    assert await refused(owner.IssueToken(gone)) == "FAILED_PRECONDITION"


async def test_only_its_tenant_gets_a_token(owner: Caller, server: RestServer) -> None:
    made = await owner.Create(pb.CreateSandboxRequest())
    stranger = owner.as_(token(server.tokens, "red", "sandbox"))
    request = pb.IssueSandboxTokenRequest(sandbox_id=made.id)
    assert await refused(stranger.IssueToken(request)) == "NOT_FOUND"


async def test_a_retried_create_gets_a_token_of_its_own(owner: Caller) -> None:
    request = pb.CreateSandboxRequest(issue_token=True, idempotency_key=f"k-{id(owner)}")
    first, again = await owner.Create(request), await owner.Create(request)
    assert first.id == again.id
    for text in (first.token, again.token):
        assert await says(owner.as_(text), first.id, "echo", "hi") == b"hi\n"
