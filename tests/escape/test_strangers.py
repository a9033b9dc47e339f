"""Callers without a token who send much: they are refused before it is read, and the server's memory does not notice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest
from rest_servers import RestServer, guarded_rest
from secure_servers import token

from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.wire.channel import CLIENT_OPTIONS, target

COUNTLESS_BYTES = 7 << 20
"""Of a message that gRPC takes; its items are too many."""
LARGE_BYTES = 60 << 20
AT_ONCE = 8
ROOM_BYTES = 300 << 20
"""What eight bodies of 60 MiB from strangers may cost together: one of them may be in hand at a time."""
LARGE_ROOM_BYTES = 600 << 20
"""What messages of 60 MiB may cost over gRPC, of which one is in hand at a time; parsed, each would be gigabytes."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with guarded_rest(tmp_path_factory.mktemp("strangers")) as running:
        yield running


class Peak:
    """The most memory that the server has had since this was made."""

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # forget the peak so far
        self._before = self._field("VmRSS")

    def _field(self, name: str) -> int:
        line = next(line for line in self._status.read_text().splitlines() if line.startswith(name))
        return int(line.split()[1]) << 10

    @property
    def grown(self) -> int:
        return self._field("VmHWM") - self._before


def address(server: RestServer) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return host, int(port)


async def answer_to(server: RestServer, head: str, body: bytes = b"") -> bytes:
    """Send a request as it stands and return what comes back, though not all of it was taken."""
    reader, writer = await asyncio.open_connection(*address(server), limit=1 << 20)

    async def send() -> None:
        with suppress(ConnectionError):
            writer.write(head.encode() + b"\r\n\r\n")
            for at in range(0, len(body), 1 << 18):
                writer.write(body[at : at + (1 << 18)])
                await writer.drain()

    sending = asyncio.ensure_future(send())
    try:
        answer = await reader.readuntil(b"\r\n\r\n")
        await sending
        return answer
    finally:
        sending.cancel()
        writer.transport.abort()


ROUTES = [
    ("POST", "/v1/sandboxes", "content-type: application/json"),
    ("POST", "/v1/batch/step", "content-type: application/json"),
    ("POST", "/v1/sandboxes/sb-0123456789abcdef/exec", "content-type: application/x-ndjson"),
    ("POST", "/e2b/sandboxes", "content-type: application/json"),
    ("POST", "/e2b/process.Process/Start", "e2b-sandbox-id: sb-0123456789abcdef"),
    ("POST", "/e2b/files?path=f", "content-type: multipart/form-data; boundary=x"),
]


@pytest.mark.parametrize(("verb", "path", "header"), ROUTES, ids=[path for _, path, _ in ROUTES])
async def test_a_strangers_body_is_not_read(server: RestServer, verb: str, path: str, header: str) -> None:
    head = f"{verb} {path} HTTP/1.1\r\nhost: x\r\n{header}\r\ncontent-length: {LARGE_BYTES}"
    body = json.dumps({"labels": {str(n): "x" for n in range(200_000)}}).encode().ljust(LARGE_BYTES)
    peak = Peak(server.pid)
    answers = await asyncio.gather(*(answer_to(server, head, body) for _ in range(AT_ONCE)))
    status = b"HTTP/1.1 502" if "Process" in path or "files" in path else b"HTTP/1.1 401"
    assert {answer[: len(status)] for answer in answers} == {status}
    assert peak.grown < ROOM_BYTES


async def test_a_stranger_is_answered_before_the_body_comes(server: RestServer) -> None:
    for verb, path, header in ROUTES:
        head = (
            f"{verb} {path} HTTP/1.1\r\nhost: x\r\n{header}\r\ncontent-length: 1000\r\nexpect: 100-continue"
        )
        answer = await answer_to(server, head)
        assert answer.startswith((b"HTTP/1.1 401", b"HTTP/1.1 502")), (path, answer)


async def test_a_strangers_messages_are_not_parsed(server: RestServer) -> None:
    many = b"\x0a\x00" * (LARGE_BYTES // 2)  # 31 million empty items
    peak = Peak(server.pid)
    async with grpc.aio.insecure_channel(target(server.grpc), options=CLIENT_OPTIONS) as channel:
        make = channel.unary_unary("/rock.v1.SandboxService/CreateMany")

        async def ask() -> str:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await make(many, metadata=(("authorization", f"Bearer rock_{'f' * 12}_{'f' * 64}"),))
            return str(caught.value.code().name)

        assert set(await asyncio.gather(*(ask() for _ in range(12)))) == {"UNAUTHENTICATED"}
    assert peak.grown < LARGE_ROOM_BYTES  # all twelve took 80 MiB each


async def test_a_tenants_message_of_countless_items_is_refused_before_it_is_parsed(
    server: RestServer,
) -> None:
    holder = (("authorization", f"Bearer {token(server.tokens, 'red', 'sandbox', 'env')}"),)
    labels = {str(number): "" for number in range(70_000)}
    many = {
        "/rock.v1.SandboxService/CreateMany": b"\x0a\x00" * (COUNTLESS_BYTES // 2),
        "/rock.v1.EnvService/StepMany": b"\x0a\x00" * (COUNTLESS_BYTES // 2),
        "/rock.v1.SandboxService/Create": pb.CreateSandboxRequest(labels=labels).SerializeToString(),
    }
    peak = Peak(server.pid)
    async with grpc.aio.insecure_channel(target(server.grpc), options=CLIENT_OPTIONS) as channel:
        for path, message in many.items():
            call = channel.stream_stream(path)(iter([message]), metadata=holder)  # fits every shape of call
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT, path
            assert "more than 65536 items" in (await call.details() or "")
    assert peak.grown < LARGE_ROOM_BYTES


async def test_json_is_small_or_comes_in_pieces(server: RestServer) -> None:
    async with server.client() as client:
        large = json.dumps({"labels": {"a": "x" * (2 << 20)}})
        kind = {"content-type": "application/json"}
        for path in ("/v1/sandboxes", "/e2b/sandboxes"):
            reply = await client.post(path, content=large, headers={**kind, "x-api-key": server.key})
            assert (reply.status_code, "larger than 1048576 bytes" in reply.text) == (413, True), path
        items = json.dumps({"items": [{}] * 70_000})
        reply = await client.post("/v1/batch/make", content=items, headers=kind)
        assert (reply.status_code, "more than 65536 items" in reply.text) == (400, True)
        deep = '{"items":' * 50_000
        reply = await client.post("/v1/batch/make", content=deep, headers=kind)
        assert reply.status_code == 400
        twice = '{"idempotency_key": "a", "idempotency_key": "b"}'
        reply = await client.post("/v1/sandboxes", content=twice, headers=kind)
        assert (reply.status_code, "duplicate key" in reply.text) == (400, True)


async def test_a_strangers_websocket_is_refused_at_its_handshake(server: RestServer) -> None:
    upgrade = (
        "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
        "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="
    )
    for path in ("/v1/sandboxes/sb-0123456789abcdef/exec", f"/ports/80-{'0' * 16}-{'0' * 40}/"):
        answer = await answer_to(server, f"GET {path} HTTP/1.1\r\nhost: x\r\n{upgrade}")
        assert answer.startswith(b"HTTP/1.1 401"), (path, answer)


async def test_answers_are_understood_in_whatever_order_they_come(server: RestServer) -> None:
    """A call that has said all is answered before one of earlier that goes on: heads are packed by those before."""
    async with grpc.aio.insecure_channel(target(server.grpc), options=CLIENT_OPTIONS) as channel:
        for _ in range(3):
            goes_on = channel.stream_stream("/rock.v1.SandboxService/Exec")()
            await goes_on.write(b"")
            for path in ("/rock.v1.SandboxService/List", "/rock.v1.EnvService/Make"):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await channel.unary_unary(path)(b"")
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, caught.value.details()
            assert await goes_on.code() is grpc.StatusCode.UNAUTHENTICATED
