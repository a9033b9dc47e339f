"""A token that is revoked, expires or is replaced ends the streams that it opened, over every way into a server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import grpc
import httpx
import pytest
from rest_servers import RestServer, connect, guarded_rest
from secure_servers import token
from websockets.exceptions import ConnectionClosed

from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub
from rock_env.security.auth import Scope, Token
from rock_env.security.sandbox_tokens import KEPT
from rock_env.security.token_file import TokenFile, add_token, read_tokens, revoke_token
from rock_env.server.interceptors.revocation import ApiHolder, Revocation
from rock_env.wire.channel import target

COUNT = "i=0; while :; do echo $((i+=1)); sleep 0.02; done"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with guarded_rest(tmp_path_factory.mktemp("revoked")) as running:
        yield running


@pytest.fixture
async def stub(server: RestServer) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(target(server.grpc)) as channel:
        yield SandboxServiceStub(channel)


def holding(text: str) -> dict[str, Any]:
    return {"metadata": (("authorization", f"Bearer {text}"),)}


def fresh(server: RestServer) -> str:
    return token(server.tokens, "blue", "sandbox")


def revoke(server: RestServer, text: str) -> None:
    revoke_token(server.tokens, text.split("_")[1])


async def box(stub: Any, server: RestServer) -> str:
    return str((await stub.Create(pb.CreateSandboxRequest(), **holding(server.key))).id)


async def socket_frames(socket: Any) -> AsyncIterator[str | bytes]:
    """Yield the frames of a WebSocket, however it ends."""
    with suppress(ConnectionClosed):
        async for frame in socket:
            yield frame


async def end_of(call: Any) -> tuple[str, str]:
    """Read a stream to its end."""
    try:
        while await call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError:
        pass
    return (await call.code()).name, await call.details() or ""


async def test_streams_of_every_shape_end_and_others_go_on(stub: Any, server: RestServer) -> None:
    name, text = await box(stub, server), fresh(server)
    counting = pb.ExecRequest(start=pb.ExecStart(sandbox_id=name, argv=["bash", "-c", COUNT]))
    watch = stub.Watch(pb.WatchSandboxesRequest(), **holding(text))
    silent = stub.Exec(**holding(text))
    silent_start = pb.ExecStart(sandbox_id=name, argv=["sleep", "600"])
    await silent.write(pb.ExecRequest(start=silent_start))
    both = stub.Exec(**holding(text))
    await both.write(counting)
    write = stub.WriteFile(**holding(text))
    await write.write(pb.WriteFileRequest(sandbox_id=name, path="f", data=b"x", more=True))
    kept = stub.Exec(**holding(server.key))
    await kept.write(counting)
    await asyncio.gather(watch.read(), both.read(), kept.read())
    revoke(server, text)
    ends = await asyncio.gather(*(end_of(each) for each in (watch, silent, both)))
    for code, said in ends:
        assert (code, "was revoked while this stream ran" in said) == ("UNAUTHENTICATED", True)
    assert await write.code() is grpc.StatusCode.UNAUTHENTICATED
    for _ in range(3):
        assert (await kept.read()).stdout.data
    kept.cancel()


async def test_events_and_websockets_of_rest_end_with_the_reason(stub: Any, server: RestServer) -> None:
    name, text = await box(stub, server), fresh(server)
    start = {"start": {"argv": ["bash", "-c", COUNT]}}
    async with (
        server.client(text) as client,
        client.stream("POST", f"/v1/sandboxes/{name}/exec", json=start) as events,
        connect(
            server.websocket(f"/v1/sandboxes/{name}/exec"), additional_headers=server.headers(text)
        ) as socket,
    ):
        await socket.send(json.dumps(start))
        await socket.recv()
        lines = events.aiter_lines()
        await anext(lines)
        revoke(server, text)
        said = [line async for line in lines]
        assert "event: error" in said
        problem = json.loads(said[said.index("event: error") + 1].removeprefix("data: "))
        assert (problem["status"], "was revoked" in problem["message"]) == (401, True)
        frames = [frame async for frame in socket_frames(socket)]
        assert json.loads(frames[-1])["error"]["code"] == "unauthenticated"
        assert socket.close_code == 4401


async def test_a_sandbox_token_that_is_replaced_ends_what_it_opened(stub: Any, server: RestServer) -> None:
    name = await box(stub, server)
    issue = pb.IssueSandboxTokenRequest(sandbox_id=name)
    first = (await stub.IssueToken(issue, **holding(server.key))).token
    call = stub.Exec(**holding(first))
    await call.write(pb.ExecRequest(start=pb.ExecStart(sandbox_id=name, argv=["bash", "-c", COUNT])))
    await call.read()
    newer = [(await stub.IssueToken(issue, **holding(server.key))).token for _ in range(KEPT)]
    code, said = await end_of(call)
    assert (code, "replaced by newer ones" in said) == ("UNAUTHENTICATED", True)
    call = stub.Exec(**holding(newer[-1]))
    await call.write(pb.ExecRequest(start=pb.ExecStart(sandbox_id=name, argv=["echo", "hi"])))
    assert (await call.read()).stdout.data == b"hi\n"


SERVE = """
import http.server, sys, time
class Endless(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        while True:
            self.wfile.write(b"tick\\n")
            time.sleep(0.02)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Endless)
print(server.server_port, flush=True)
server.serve_forever()
"""


async def test_a_ports_url_that_is_replaced_ends_what_runs_through_it(stub: Any, server: RestServer) -> None:
    name = await box(stub, server)
    serve = stub.Exec(**holding(server.key))
    await serve.write(pb.ExecRequest(start=pb.ExecStart(sandbox_id=name, argv=["python3", "-c", SERVE])))
    port = int((await serve.read()).stdout.data)
    expose = pb.ExposeRequest(sandbox_id=name, port=port)
    url = (await stub.Expose(expose, **holding(server.key))).url
    async with server.client("") as client, client.stream("GET", url) as reply:
        ticks = reply.aiter_raw()
        await anext(ticks)
        for _ in range(KEPT):
            newest = (await stub.Expose(expose, **holding(server.key))).url
        with suppress(httpx.HTTPError):  # it is cut, or it ends: what counts is that it does
            async for _ in ticks:
                pass
        assert (await client.get(url)).status_code == 401
        async with client.stream("GET", newest) as again:
            assert again.status_code == 200
    serve.cancel()


def test_what_ends_a_token_is_seen_and_what_does_not_is_not(tmp_path: Any) -> None:
    file = tmp_path / "tokens.json"
    text = token(file, "blue", "sandbox", "env")
    known = read_tokens(file)[text.split("_")[1]]
    tokens = TokenFile(file)
    ended: list[str] = []
    revocation = Revocation(tokens, lambda _, error: ended.append(error.message))

    async def run() -> None:
        waiting = asyncio.ensure_future(asyncio.Event().wait())
        revocation.note(ApiHolder(known.id, known.secret_sha256, Scope.ENV), waiting)

        def look() -> list[str]:
            ended.clear()
            revocation.look()
            return list(ended)

        def put(**changed: Any) -> None:
            fields = {name: getattr(known, name) for name in Token.__slots__} | changed
            add_token(file, Token(**fields))

        assert look() == []
        token(file, "red", "env")  # the file changed, this token did not
        assert look() == []
        put(expires_at=1.0)
        assert "expired at 1970" in look()[0]
        put(scopes=frozenset({Scope.SANDBOX}))
        assert "lost the scope env" in look()[0]
        put(secret_sha256=bytes(32))
        assert "was revoked" in look()[0]
        put()
        assert look() == []
        content = file.read_bytes()
        file.write_bytes(b"{")
        assert look() == []  # nobody new gets in, and what runs goes on
        file.write_bytes(content)
        revoke_token(file, known.id)
        assert "was revoked" in look()[0]
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert look() == []

    asyncio.run(run())
