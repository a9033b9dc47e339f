"""Ports of a sandbox from outside: HTTP, WebSockets and plain TCP, into boxes that have no network of their own."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager

import grpc
import httpx
import psutil
import pytest
from docker_engine import BUSYBOX, engine  # noqa: F401  a fixture
from rest_servers import RestServer, connect, guarded_rest, make_box, open_rest
from secure_servers import token
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from rock_env.backends.process.backend import why_not_fenced
from rock_env.client import Client, Credentials
from rock_env.errors import PermissionDenied
from rock_env.proto.v1 import sandbox_pb2 as pb
from rock_env.proto.v1.sandbox_pb2_grpc import SandboxServiceStub

HTTP_APP = r"""
import http.server, sys
class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/redirect":
            return self.answer(b"", 302, Location="/there?x=1")
        if self.path == "/host-wide":
            return self.answer(b"", **{
                "set-cookie": "a=1; path=/", "clear-site-data": '"*"', "strict-transport-security": "max-age=9",
                "service-worker-allowed": "/", "alt-svc": 'h2="evil:443"', "nel": "{}", "etag": '"own"'})
        if self.path == "/chunks":
            self.send_response(200); self.send_header("transfer-encoding", "chunked"); self.end_headers()
            for word in self.rfile.readline, None:
                self.wfile.write(b"4\r\nword\r\n"); self.wfile.flush()
                if word: word()
            return self.wfile.write(b"0\r\n\r\n")
        if self.path == "/endless":
            self.send_response(200); self.end_headers()
            while True: self.wfile.write(bytes(1 << 16))
        self.answer(f"{self.command} {self.path}\n{self.headers}".encode())
    def do_POST(self):
        size = self.headers["content-length"]
        total = len(self.rfile.read(int(size))) if size else 0
        while not size:
            length = int(self.rfile.readline(), 16)
            total += len(self.rfile.read(length)); self.rfile.readline()
            if not length: break
        self.answer(str(total).encode())
    def answer(self, body, status=200, **headers):
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), "connection": "x-hop", "x-hop": "1", **headers}.items():
            self.send_header(name, value)
        self.end_headers(); self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), App)
print(server.server_port, flush=True)
server.serve_forever()
"""
SOCKET_APP = r"""
import asyncio, websockets
async def echo(socket):
    async for message in socket:
        if message == "bye": await socket.close(4001, "as asked")
        elif message == "shown": await socket.send(str(socket.request.headers))
        else: await socket.send(message)
async def main():
    async with websockets.serve(echo, "127.0.0.1", 0, subprotocols=["chat"]) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""
TCP_APP = r"""
import socket, sys
listener = socket.create_server(("127.0.0.1", 0)); print(listener.getsockname()[1], flush=True)
while True:
    peer, _ = listener.accept()
    if sys.argv[1] == "deaf":
        kept = peer
        continue
    data = bytearray()
    while block := peer.recv(1 << 16): data += block
    peer.sendall(data); peer.close()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with guarded_rest(tmp_path_factory.mktemp("ports")) as running:
        yield running


@asynccontextmanager
async def listening(server: RestServer, *argv: str) -> AsyncIterator[tuple[str, int]]:
    """Run a program in a new box that prints the port it listens on; yield the box and the port."""
    async with server.client() as client:
        box = await make_box(client)
        url = server.websocket(f"/v1/sandboxes/{box}/exec")
        async with connect(url, additional_headers=server.headers()) as socket:
            await socket.send(json.dumps({"start": {"argv": argv, "timeout": "600s"}}))
            said = json.loads(await socket.recv())
            assert "stdout" in said, said
            yield box, int(base64.b64decode(said["stdout"]["data"]))
        await client.delete(f"/v1/sandboxes/{box}")


async def exposed(server: RestServer, box: str, port: int) -> str:
    async with server.client() as client:
        reply = await client.post(f"/v1/sandboxes/{box}/ports", json={"port": port})
        assert reply.status_code == 200, reply.text
        return str(reply.json()["url"])


@pytest.fixture
async def stranger() -> AsyncIterator[httpx.AsyncClient]:
    """Call without a token: the URL holds all that is needed."""
    async with httpx.AsyncClient(timeout=60) as client:
        yield client


async def test_http_goes_both_ways(server: RestServer, stranger: httpx.AsyncClient) -> None:
    async with listening(server, sys.executable, "-c", HTTP_APP) as (box, port):
        url = await exposed(server, box, port)
        key = server.headers()["authorization"]
        asked = {"authorization": key, "x-app": "mine", "te": "trailers", "x-forwarded-for": "6.6.6.6"}
        bare = await stranger.get(f"{url.rstrip('/')}?q=1", follow_redirects=False)
        assert (bare.status_code, bare.headers["location"]) == (308, f"{httpx.URL(url).path}?q=1")
        reply = await stranger.get(f"{url}a%20b?q=1", headers=asked)
        assert reply.text.startswith("GET /a%20b?q=1\n")
        assert "x-app: mine" in reply.text
        assert f"x-forwarded-prefix: /ports/{url.split('/')[-2]}" in reply.text
        for hidden in (key, "trailers", "6.6.6.6"):
            assert hidden not in reply.text
        assert "x-hop" not in reply.headers
        assert "allow-same-origin" not in reply.headers["content-security-policy"]
        own = await stranger.get(url, headers={"authorization": "Basic eDp5"})
        assert "Basic eDp5" in own.text, "an application's own passes"
        moved = await stranger.get(f"{url}redirect")
        assert (moved.status_code, str(moved.next_request and moved.next_request.url)) == (
            302,
            f"{url}there?x=1",
        )

        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield bytes(50_000)

        assert (await stranger.post(url, content=bytes(3_000_000))).text == "3000000"
        assert (await stranger.post(url, content=pieces())).text == "5000000"
        by_name = await stranger.get(server.url, headers={"host": f"{url.split('/')[-2]}.boxes.example"})
        assert by_name.text.startswith("GET /\n")
        assert "content-security-policy" not in by_name.headers, "a name of its own is an origin of its own"


_HOST_WIDE = (
    *("set-cookie", "clear-site-data", "strict-transport-security", "service-worker-allowed"),
    *("alt-svc", "nel"),
)


async def test_a_page_by_path_neither_gets_nor_sets_what_is_the_hosts(
    server: RestServer, stranger: httpx.AsyncClient
) -> None:
    async with listening(server, sys.executable, "-c", HTTP_APP) as (box, port):
        url = await exposed(server, box, port)
        name = {"host": f"{url.split('/')[-2]}.boxes.example"}
        cookie = {"cookie": "session=of-the-host"}
        bearer = {"sec-websocket-protocol": f"rock.v1.bearer.{server.key}"}
        shown = (await stranger.get(url, headers=cookie | bearer)).text
        assert ("of-the-host" in shown, server.key in shown) == (False, False)
        assert "of-the-host" in (await stranger.get(server.url, headers=cookie | name)).text
        by_path = (await stranger.get(f"{url}host-wide")).headers
        assert ([header for header in _HOST_WIDE if header in by_path], by_path["etag"]) == ([], '"own"')
        by_name = (await stranger.get(f"{server.url}/host-wide", headers=name)).headers
        assert [header for header in _HOST_WIDE if header in by_name] == list(_HOST_WIDE), "its own host"


async def test_a_websockets_token_and_the_hosts_cookies_do_not_reach_the_box(server: RestServer) -> None:
    bearer = Subprotocol(f"rock.v1.bearer.{server.key}")
    async with listening(server, sys.executable, "-c", SOCKET_APP) as (box, port):
        url = (await exposed(server, box, port)).replace("http", "ws", 1)
        headers = {"cookie": "session=of-the-host"}
        offered = [bearer, Subprotocol("chat")]
        async with connect(url, subprotocols=offered, additional_headers=headers) as socket:
            await socket.send("shown")
            shown = str(await socket.recv()).lower()
        assert (socket.subprotocol, "bearer" in shown, "cookie" in shown) == ("chat", False, False)


async def test_a_client_that_does_not_read_holds_the_application_back(
    server: RestServer, stranger: httpx.AsyncClient
) -> None:
    async with listening(server, sys.executable, "-c", HTTP_APP) as (box, port):
        process = psutil.Process(server.pid)
        before = process.memory_info().rss
        async with stranger.stream("GET", f"{await exposed(server, box, port)}endless") as reply:
            await anext(reply.aiter_raw())
            await asyncio.sleep(1.0)
            assert process.memory_info().rss < before + (48 << 20)


async def test_websockets_go_both_ways(server: RestServer) -> None:
    async with listening(server, sys.executable, "-c", SOCKET_APP) as (box, port):
        url = (await exposed(server, box, port)).replace("http", "ws", 1)
        async with connect(f"{url}path", subprotocols=[Subprotocol("chat")]) as socket:
            assert socket.subprotocol == "chat"
            for message in ("text", b"\x00" * 300_000):
                await socket.send(message)
                assert await socket.recv() == message
            await socket.send("bye")
            with pytest.raises(ConnectionClosed):
                await socket.recv()
            assert (socket.close_code, socket.close_reason) == (4001, "as asked")


async def test_what_cannot_be_reached_says_why(server: RestServer, stranger: httpx.AsyncClient) -> None:
    async with listening(server, sys.executable, "-c", HTTP_APP) as (box, port):
        nobody = await exposed(server, box, 1)
        reply = await stranger.get(nobody)
        assert (reply.status_code, "nothing listens on port 1" in reply.json()["message"]) == (502, True)
        with pytest.raises(InvalidStatus) as caught:
            await connect(nobody.replace("http", "ws", 1))
        assert caught.value.response.status_code == 502
        url = await exposed(server, box, port)
        with pytest.raises(InvalidStatus) as caught:
            await connect(url.replace("http", "ws", 1))
        assert caught.value.response.status_code == 502
        assert (await stranger.get(url.replace(url[-5:], "0000/"))).status_code == 401
        assert (await stranger.get(f"{server.url}/ports/nonsense/")).status_code == 404
        async with server.client() as client:
            for bad in (0, 65536):
                wrong = await client.post(f"/v1/sandboxes/{box}/ports", json={"port": bad})
                assert (wrong.status_code, "65535" in wrong.json()["message"]) == (400, True)
            await client.post(f"/v1/sandboxes/{box}/pause")
            paused = await stranger.get(url)
            assert (paused.status_code, "PAUSED" in paused.json()["message"]) == (502, True)
            await client.delete(f"/v1/sandboxes/{box}")
        assert (await stranger.get(url)).status_code == 401, "it ends with the box"


async def test_a_ports_token_is_for_that_port_alone(server: RestServer) -> None:
    async with listening(server, sys.executable, "-c", HTTP_APP) as (box, port):
        label = (await exposed(server, box, port)).split("/")[-2]
        text = f"rock_{box}_{label.split('-')[2]}"
        async with server.client(text) as client:
            refused = await client.get(f"/v1/sandboxes/{box}/stat?path=.")
            assert (refused.status_code, f"port {port}" in refused.json()["message"]) == (403, True)
        async with Credentials().channel(server.grpc) as channel:
            call = SandboxServiceStub(channel).Dial(metadata=(("authorization", f"Bearer {text}"),))
            await call.write(pb.DialRequest(start=pb.DialStart(sandbox_id=box, port=port + 1)))
            with pytest.raises(grpc.aio.AioRpcError, match=f"for port {port}"):
                await call.read()
        async with server.client(token(server.tokens, "red", "sandbox")) as other:
            reply = await other.post(f"/v1/sandboxes/{box}/ports", json={"port": port})
            assert reply.status_code == 404


async def test_the_secret_of_a_ports_url_counts_without_tokens_too(stranger: httpx.AsyncClient) -> None:
    with open_rest() as server:
        async with (
            listening(server, sys.executable, "-c", HTTP_APP) as (box, port),
            server.client() as client,
        ):
            url = await exposed(server, box, port)
            label = url.split("/")[-2]
            assert (await stranger.get(url)).status_code == 200
            other = (await make_box(client)).removeprefix("sb-")
            number, own, secret = label.split("-")
            for wrong, status in (
                (f"{number}-{own}-{'0' * 40}", 401),
                (f"{number}-{other}-{secret}", 401),
                (f"{int(number) - 1}-{own}-{secret}", 403),
            ):
                by_path = await stranger.get(url.replace(label, wrong))
                by_name = await stranger.get(server.url, headers={"host": f"{wrong}.localhost"})
                assert (by_path.status_code, by_name.status_code) == (status, status), wrong
                with pytest.raises(InvalidStatus) as caught:
                    await connect(url.replace(label, wrong).replace("http", "ws", 1))
                assert caught.value.response.status_code == status
            await client.delete(f"/v1/sandboxes/{box}")
            assert (await stranger.get(url)).status_code == 401, "it ends with the box"


@pytest.mark.parametrize("transport", ["grpc", "rest"])
async def test_tcp_is_carried_whole_and_half_closed(server: RestServer, transport: str) -> None:
    address = server.grpc if transport == "grpc" else server.url
    sent = bytes(range(256)) * (20_000)
    async with (
        listening(server, sys.executable, "-c", TCP_APP, "echo") as (box, port),
        Credentials().channel(address) as channel,
    ):
        metadata = (("authorization", f"Bearer {server.key}"),)
        call = SandboxServiceStub(channel).Dial(metadata=metadata)
        await call.write(pb.DialRequest(start=pb.DialStart(sandbox_id=box, port=port)))
        assert (await call.read()).data == b""
        for start in range(0, len(sent), 1 << 18):
            await call.write(pb.DialRequest(data=sent[start : start + (1 << 18)]))
        await call.done_writing()
        got = bytearray()
        while (reply := await call.read()) is not grpc.aio.EOF:
            got += reply.data
        assert bytes(got) == sent


async def test_a_listener_that_does_not_read_holds_the_sender_back(server: RestServer) -> None:
    async with (
        listening(server, sys.executable, "-c", TCP_APP, "deaf") as (box, port),
        Credentials().channel(server.grpc) as channel,
    ):
        process = psutil.Process(server.pid)
        before = process.memory_info().rss
        call = SandboxServiceStub(channel).Dial(metadata=(("authorization", f"Bearer {server.key}"),))
        await call.write(pb.DialRequest(start=pb.DialStart(sandbox_id=box, port=port)))
        await call.read()
        sent = 0

        async def fill() -> None:
            nonlocal sent
            while True:
                await call.write(pb.DialRequest(data=bytes(1 << 20)))
                sent += 1

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fill(), 1.5)
        assert sent < 64
        assert process.memory_info().rss < before + (48 << 20)
        call.cancel()


async def test_a_box_without_a_network_is_reached(tmp_path_factory: pytest.TempPathFactory) -> None:
    why = await why_not_fenced()
    if why:
        pytest.skip(f"no isolation here: {why}")
    folder = tmp_path_factory.mktemp("fenced")
    with guarded_rest(folder, ["--isolation=namespaces"]) as server:
        async with listening(server, "python3", "-c", HTTP_APP) as (box, port):
            async with httpx.AsyncClient(timeout=60) as client:
                reply = await client.get(f"{await exposed(server, box, port)}inside")
            assert reply.text.startswith("GET /inside\n")


@pytest.mark.usefixtures("engine")
async def test_a_container_is_reached(server: RestServer, stranger: httpx.AsyncClient) -> None:
    async with server.client() as client:
        made = await client.post("/v1/sandboxes", json={"spec": {"image": BUSYBOX}})
        assert made.status_code == 200, made.text
        box = made.json()["id"]
        await client.put(f"/v1/sandboxes/{box}/file?path=page", content=b"inside")
        script = "httpd -p 127.0.0.1:8000 -h . && echo up"
        said = await client.post(
            f"/v1/sandboxes/{box}/exec", json={"start": {"argv": ["/bin/sh", "-c", script]}}
        )
        assert base64.b64encode(b"up\n").decode() in said.text, said.text
        assert (await stranger.get(f"{await exposed(server, box, 8000)}page")).text == "inside"
        await client.delete(f"/v1/sandboxes/{box}")


async def test_the_client_gives_out_a_url_and_a_token(
    server: RestServer, stranger: httpx.AsyncClient
) -> None:
    async with (
        Client(server.url, credentials=Credentials(token=server.key)) as client,
        await client.sandboxes.create() as box,
    ):
        app = await box.start_process([sys.executable, "-c", HTTP_APP])
        async with aclosing(app.logs(follow=True)) as logs:
            port = int((await anext(logs)).data)
        assert "GET /page" in (await stranger.get(f"{await box.expose(port)}page")).text
        inside = await box.issue_token()
        assert inside != await box.issue_token()
        async with Client(server.grpc, credentials=Credentials(token=inside)) as theirs:
            with pytest.raises(PermissionDenied):
                await theirs.sandboxes.list()
