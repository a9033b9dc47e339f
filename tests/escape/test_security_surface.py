"""Every RPC and route of a running server, tried without a token: refused from the headers, or open and in the table."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType

import grpc
import pytest
from agents_at_gateway import world
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from rest_servers import RestServer, guarded_rest
from secure_servers import token

from agent_runtime.gateway.server import Gateway
from rock_env.wire.channel import target

ROOT = Path(__file__).parents[2]
UPGRADE = (
    "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="
)
GARBAGE = b"\xff\xff\xff\xff"


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("security_surface", ROOT / "scripts/security_surface.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def surface() -> ModuleType:
    return _script()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with guarded_rest(tmp_path_factory.mktemp("surface")) as running:
        yield running


@pytest.fixture
async def channel(server: RestServer) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(target(server.grpc)) as opened:
        yield opened


async def offered(channel: grpc.aio.Channel, server: RestServer) -> set[str]:
    """Return the calls that the running server says it has."""
    holder = (("authorization", f"Bearer {token(server.tokens, 'op', 'admin')}"),)
    ask = reflection_pb2.ServerReflectionRequest
    reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
    found = set()
    names = [
        service.name
        async for reply in reflect(iter([ask(list_services="")]), metadata=holder)
        for service in reply.list_services_response.service
    ]
    async for reply in reflect(iter([ask(file_containing_symbol=name) for name in names]), metadata=holder):
        for raw in reply.file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(raw)
            for service in file.service:
                full = f"{file.package}.{service.name}"
                found |= {f"/{full}/{method.name}" for method in service.method if full in names}
    return found


async def test_the_page_is_fresh(surface: ModuleType) -> None:
    assert surface.PAGE.read_text() == surface.page(), "run: python scripts/security_surface.py"


async def test_every_call_is_in_the_table_and_refused_before_its_message(
    channel: grpc.aio.Channel, server: RestServer, surface: ModuleType
) -> None:
    page = surface.PAGE.read_text()
    calls = await offered(channel, server)
    assert len(calls) > 60
    for path in sorted(calls):
        assert f"| `{path}` |" in page, f"{path} has no row"
        if path.startswith("/grpc.health.v1.Health/"):
            continue
        # On the wire a stream fits every shape. Nothing is sent in the first: it is refused all the same.
        assert await channel.stream_stream(path)().code() is grpc.StatusCode.UNAUTHENTICATED, path
        # Bytes that are no message would be INVALID_ARGUMENT if anybody had parsed them.
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(path)(GARBAGE)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, path


async def head_of_answer(server: RestServer, head: str) -> bytes:
    """Send a request's head, promise a body that never comes, and return the head of the answer."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"{head}\r\nhost: x\r\n\r\n".encode())
        return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.transport.abort()


async def test_every_route_is_in_the_table_and_refused_before_its_body(
    server: RestServer, surface: ModuleType
) -> None:
    page = surface.PAGE.read_text()
    routes = surface.http_routes()
    assert len(routes) > 80
    for verb, path in routes:
        assert f"| {verb} | `{path}` |" in page, f"{verb} {path} has no row"
        concrete = path.replace("{rest:path}", "unknown").replace(":path}", "}")
        concrete = concrete.replace("{", "").replace("}", "")
        if verb == "WS":
            answer = await head_of_answer(server, f"GET {concrete} HTTP/1.1\r\n{UPGRADE}")
        elif path in surface.DOCS:
            answer = await head_of_answer(server, f"GET {concrete} HTTP/1.1")
            assert answer.startswith(b"HTTP/1.1 200"), path
            continue
        else:
            promised = "content-length: 1000\r\nexpect: 100-continue\r\ncontent-type: application/json"
            answer = await head_of_answer(server, f"{verb} {concrete} HTTP/1.1\r\n{promised}")
        if path == "/e2b/{rest:path}":
            expected = b"HTTP/1.1 501"
        elif path.startswith("/e2b/") and "sandboxes" not in path:
            expected = b"HTTP/1.1 502"  # what E2B's SDK expects of a box that is not for its caller
        else:
            expected = b"HTTP/1.1 401"
        assert answer.startswith(expected), (verb, path, answer)


async def test_every_route_of_the_agents_gateway_wants_its_key_first(surface: ModuleType) -> None:
    routes = surface.agent_routes()
    source = ast.parse(textwrap.dedent(inspect.getsource(Gateway._route)))
    branches = sum(isinstance(node, ast.If) for node in ast.walk(source))
    kinds = {"answer", "count", "models", "model", "root"}
    assert branches == len(kinds), "a new route of the gateway: give it a row in agent_routes"
    async with world() as w:
        host, _, port = w.url.removeprefix("http://").rpartition(":")
        for verb, path, key in routes:
            promised = "content-length: 1000" if verb == "POST" else "accept: */*"
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(
                f"{verb} {path.replace('{name}', 'm')} HTTP/1.1\r\n{promised}\r\nhost: x\r\n\r\n".encode()
            )
            answer = await reader.readuntil(b"\r\n\r\n")
            writer.transport.abort()
            assert answer.startswith(b"HTTP/1.1 401" if key else b"HTTP/1.1 200"), (verb, path, answer)
