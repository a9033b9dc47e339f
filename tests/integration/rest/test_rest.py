"""REST over real sockets: errors, streams, files, WebSockets, and clients that vanish or do not read."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import random
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from docker_engine import engine  # noqa: F401  a fixture
from rest_servers import RestServer, connect, guarded_rest, make_box
from secure_servers import make_certificates, token
from waiting import until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from rock_env.client import Client, Credentials
from rock_env.errors import Unauthenticated
from rock_env.local import embedded, start_embedded
from rock_env.proto.v1 import sandbox_pb2 as pb


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with guarded_rest(tmp_path_factory.mktemp("rest")) as running:
        yield running


@pytest.fixture
async def client(server: RestServer) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client() as opened:
        yield opened


def events(text: str) -> list[dict[str, str]]:
    """Read server-sent events."""
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]


# -- errors


@pytest.mark.parametrize(
    ("verb", "path", "more", "status", "said"),
    [
        ("POST", "/v1/sandboxes", {"content": b"{"}, 415, "application/json"),
        ("POST", "/v1/sandboxes", {"json": {"leese": "1s"}}, 400, "leese"),
        ("POST", "/v1/sandboxes", {"json": {"lease": "-1s"}}, 400, "lease"),
        ("GET", "/v1/sandboxes?page=1", {}, 400, "unknown query parameter 'page'"),
        ("GET", "/v1/sandboxes/nope", {}, 404, "nope"),
        ("POST", "/v1/sandboxes/a/renew", {"json": {"id": "b"}}, 400, "in the path"),
        ("GET", "/v1/nothing", {}, 404, "/openapi.json"),
        ("PUT", "/v1/sandboxes", {}, 404, "PUT"),
        ("GET", "/v1/capacity", {}, 403, "admin"),
        ("GET", "/v1/envs", {"headers": {"authorization": "Bearer nonsense"}}, 401, "malformed"),
        ("GET", "/v1/envs", {"headers": {"authorization": "Basic eDp5"}}, 401, "Bearer"),
        ("GET", "/v1/envs", {"headers": {"authorization": b"Bearer \xe9"}}, 401, "ASCII"),
        ("GET", "/v1/envs", {"headers": {"rock-timeout-s": "soon"}}, 400, "rock-timeout-s"),
        ("POST", "/v1/environments/e/step", {"json": {"sequence": "1"}}, 404, "e"),
    ],
)
async def test_an_error_is_a_problem_with_its_code(
    client: httpx.AsyncClient, verb: str, path: str, more: dict[str, Any], status: int, said: str
) -> None:
    reply = await client.request(verb, path, **more)
    problem = reply.json()
    assert (reply.status_code, problem["status"]) == (status, status)
    assert reply.headers["content-type"] == "application/problem+json"
    assert said in problem["message"]
    assert ("www-authenticate" in reply.headers) == (status == 401)


async def test_a_deadline_and_a_body_have_limits(client: httpx.AsyncClient) -> None:
    env = (await client.post("/v1/environments", json={"env": "toy_box"})).json()["env_id"]
    reset = {"sequence": "1", "task_id": "train/0"}
    assert (await client.post(f"/v1/environments/{env}/reset", json=reset)).status_code == 200
    late = await client.post(
        f"/v1/environments/{env}/step",
        json={"sequence": "2", "action": "sleep 60"},
        headers={"rock-timeout-s": "0.3"},
    )
    assert (late.status_code, late.json()["code"]) == (504, "deadline_exceeded")
    await client.delete(f"/v1/environments/{env}")

    async def endless() -> AsyncIterator[bytes]:
        yield b'{"labels": {"a": "'
        for _ in range(65):
            yield b"x" * (1 << 20)

    reply = await client.post(
        "/v1/sandboxes", content=endless(), headers={"content-type": "application/json"}
    )
    assert (reply.status_code, "larger than" in reply.json()["message"]) == (413, True)


async def test_nonsense_harms_nobody(client: httpx.AsyncClient, server: RestServer) -> None:
    draw = random.Random(7)
    paths = [path for path in (await client.get("/openapi.json")).json()["paths"] if "batch" not in path]
    bodies = [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"\x00\xff",
        b'{"a":' * 2000,
        b"9" * 5000,
        b'{"start": {"argv": [1]}}',
    ]
    kinds = ["application/json", "application/x-ndjson", "text/plain", ""]
    for _ in range(300):
        path = "".join(
            draw.choice(["x", "..", "%00", "%2F", "é", "-1", "{"]) if c == "{" else c
            for c in draw.choice(paths).replace("}", "")
        )
        request = client.build_request(
            draw.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"]),
            path + draw.choice(["", "?", "?a", "?path=%00", "?offset=-1", "?id=%ff", "?states=999"]),
            content=draw.choice(bodies),
            headers={"content-type": draw.choice(kinds), "range": draw.choice(["", "bytes=9-1", "bytes=x"])},
        )
        reply = await client.send(request, stream=True)  # a watch has no end
        await reply.aclose()
        assert reply.status_code < 500 or reply.status_code == 501, (path, request.content, reply)
    assert (await client.get("/healthz")).json() == {"status": "SERVING"}


async def test_the_description_is_served(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert "openapi.json" in (await client.get("/docs")).text


# -- streams


@pytest.mark.first
async def test_exec_in_one_request_streams_events(client: httpx.AsyncClient) -> None:
    box = await make_box(client)
    script = "read line; echo out $line; echo err >&2; exit 3"
    lines = [
        {"start": {"argv": ["sh", "-c", script]}},
        {"stdin": base64.b64encode(b"in\n").decode()},
    ]
    reply = await client.post(
        f"/v1/sandboxes/{box}/exec",
        content="\n".join(map(json.dumps, lines)),
        headers={"content-type": "application/x-ndjson"},
    )
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = events(reply.text)
    said = {"stdout": b"", "stderr": b""}
    for event in found[:-2]:
        ((name, chunk),) = json.loads(event["data"]).items()
        said[name] += base64.b64decode(chunk["data"])
    assert said == {"stdout": b"out in\n", "stderr": b"err\n"}
    assert (found[-2]["id"], json.loads(found[-2]["data"])["exit"]["exit_code"]) == ("7:4", 3)
    assert found[-1] == {"event": "end", "data": "{}"}
    refused = await client.post(f"/v1/sandboxes/{box}/exec", json={"stdin": "YQ=="})
    assert (refused.status_code, "must be `start`" in refused.json()["message"]) == (400, True)
    halfway = await client.post(
        f"/v1/sandboxes/{box}/exec",
        content=json.dumps(lines[0]) + '\n{"stdin": 5}',
        headers={"content-type": "application/x-ndjson"},
    )
    assert (halfway.status_code, "stdin" in halfway.json()["message"]) == (400, True)


async def test_a_watch_resumes_after_the_last_event(client: httpx.AsyncClient) -> None:
    label = f"watch-{random.random()}"
    made = (await client.post("/v1/sandboxes", json={"labels": {"is": label}})).json()

    async def first(last: str | None) -> dict[str, str]:
        headers = {"last-event-id": last} if last else {}
        url = f"/v1/sandbox-events?labels.is={label}"
        async with client.stream("GET", url, headers=headers) as reply:
            found: dict[str, str] = {}
            async for line in reply.aiter_lines():
                if not line:
                    return found
                name, _, value = line.partition(": ")
                found[name] = value
        pytest.fail("the watch ended")

    event = await first(None)
    assert (event["id"], json.loads(event["data"])["id"]) == (made["revision"], made["id"])
    await client.post(f"/v1/sandboxes/{made['id']}/pause")
    later = await first(event["id"])
    assert int(later["id"]) > int(event["id"])
    assert json.loads(later["data"])["state"] == "SANDBOX_STATE_PAUSED"
    wrong = await client.get("/v1/sandbox-events", headers={"last-event-id": "x"})
    assert (wrong.status_code, "Last-Event-ID" in wrong.json()["message"]) == (400, True)


async def test_who_hangs_up_cancels_the_call(client: httpx.AsyncClient) -> None:
    box = await make_box(client)
    start = {"argv": ["bash", "-c", "echo $$; exec sleep 600"], "timeout": "600s"}
    async with client.stream("POST", f"/v1/sandboxes/{box}/exec", json={"start": start}) as reply:
        lines = reply.aiter_lines()
        data = next_data = ""
        while not data:
            next_data = await anext(lines)
            data = next_data.removeprefix("data: ") if next_data.startswith("data: ") else ""
        pid = int(base64.b64decode(json.loads(data)["stdout"]["data"]))
        assert psutil.pid_exists(pid)
    await until(lambda: not psutil.pid_exists(pid))


# -- files


@pytest.mark.first
async def test_files_travel_as_they_are(client: httpx.AsyncClient) -> None:
    box = await make_box(client)
    content = random.Random(1).randbytes(3 << 20)
    wrote = await client.put(f"/v1/sandboxes/{box}/file?path=a/b%20c&mode=384", content=content)
    assert (wrote.json()["size"], wrote.json()["mode"]) == (str(len(content)), 0o600)
    url = f"/v1/sandboxes/{box}/file?path=a/b%20c"
    whole = await client.get(url)
    assert (whole.content, whole.headers["accept-ranges"]) == (content, "bytes")
    for asked, expected in {
        "bytes=5-9": content[5:10],
        "bytes=-7": content[-7:],
        f"bytes={len(content) - 2}-": content[-2:],
        f"bytes=0-{len(content) * 2}": content,
    }.items():
        part = await client.get(url, headers={"range": asked})
        assert (part.status_code, part.content) == (206, expected)
        assert part.headers["content-range"].endswith(f"/{len(content)}")
    for start in (str(len(content)), str((1 << 63) - 1), str(1 << 64), "9" * 4500):
        beyond = await client.get(url, headers={"range": f"bytes={start}-"})
        assert (beyond.status_code, beyond.json()["code"]) == (416, "invalid_argument"), start
    for asked in ("bytes=0-1,3-4", "bytes=-", "bytes=1 2-", "bytes=+1-", "bytes=٣-".encode(), "lines=1-"):
        several = await client.get(url, headers={"range": asked})
        assert (several.status_code, len(several.content)) == (200, len(content)), asked
    part = await client.get(url, headers={"range": f"bytes=-{'9' * 4500}"})
    assert (part.status_code, part.content) == (206, content)
    link = {"start": {"argv": ["ln", "-s", "a/b c", "link"]}}
    assert '"exit_code": 0' in (await client.post(f"/v1/sandboxes/{box}/exec", json=link)).text
    linked = await client.get(f"/v1/sandboxes/{box}/file?path=link", headers={"range": "bytes=2-"})
    assert (linked.status_code, linked.content) == (200, content), "a link has a size of its own"
    assert (await client.get(f"/v1/sandboxes/{box}/file?path=none")).status_code == 404
    empty = await client.put(f"/v1/sandboxes/{box}/file?path=empty")
    assert (empty.json()["path"], empty.json()["size"]) == ("empty", "0")
    listed = (await client.get(f"/v1/sandboxes/{box}/files")).json()["files"]
    assert {file["path"] for file in listed} == {"a", "empty", "link"}


@pytest.mark.parametrize("text", ["٣s", " 3s", "+3s", "3_0s", "3.s", "3 s", "1e3s", "3", "0x3s"])
async def test_durations_have_one_form(client: httpx.AsyncClient, text: str) -> None:
    box = await make_box(client)
    bad = await client.post(f"/v1/sandboxes/{box}/renew", json={"lease": text})
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid_argument")
    start = {"argv": ["true"], "timeout": text}
    bad = await client.post(f"/v1/sandboxes/{box}/exec", json={"start": start})
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid_argument")
    good = await client.post(f"/v1/sandboxes/{box}/renew", json={"lease": "30.5s"})
    assert good.status_code == 200


async def test_a_client_that_does_not_read_costs_no_memory(
    client: httpx.AsyncClient, server: RestServer
) -> None:
    box = await make_box(client)
    start = {"argv": ["truncate", "-s", "1G", "large"]}
    await client.post(f"/v1/sandboxes/{box}/exec", json={"start": start})
    process = psutil.Process(server.pid)
    before = process.memory_info().rss
    async with client.stream("GET", f"/v1/sandboxes/{box}/file?path=large") as reply:
        stream = reply.aiter_raw()
        await anext(stream)
        sent = [-2, -1]

        def held_back() -> bool:
            sent[:] = sent[1], process.io_counters().write_chars
            return sent[0] == sent[1]

        await until(held_back, every_s=0.3)
        assert process.memory_info().rss < before + (64 << 20)


# -- WebSockets


@pytest.mark.first
async def test_exec_over_a_websocket_goes_both_ways(client: httpx.AsyncClient, server: RestServer) -> None:
    box = await make_box(client)
    url = server.websocket(f"/v1/sandboxes/{box}/exec")
    bearer = Subprotocol(f"rock.v1.bearer.{server.key}")
    async with connect(url, subprotocols=[Subprotocol("rock.v1.json"), bearer]) as socket:
        assert socket.subprotocol == "rock.v1.json"
        await socket.send(json.dumps({"start": {"argv": ["cat"]}}))
        for text in (b"one", b"two"):
            await socket.send(json.dumps({"stdin": base64.b64encode(text).decode()}))
            assert base64.b64decode(json.loads(await socket.recv())["stdout"]["data"]) == text
        await socket.send("")
        assert json.loads(await socket.recv())["exit"]["exit_code"] == 0
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1000
    proto = Subprotocol("rock.v1.proto")
    async with connect(url, subprotocols=[proto], additional_headers=server.headers()) as socket:
        start = pb.ExecStart(argv=["echo", "hi"])
        await socket.send(pb.ExecRequest(start=start).SerializeToString())
        assert pb.ExecEvent.FromString(await socket.recv(decode=False)).stdout.data == b"hi\n"


@pytest.mark.parametrize(
    ("frame", "status", "said"),
    [
        (json.dumps({"stdin": "YQ=="}), 400, "must be `start`"),
        ("{", 400, "malformed"),
        (b"\x00", 400, "expected JSON"),
        (json.dumps({"start": {"sandbox_id": "another"}}), 400, "in the path"),
    ],
)
async def test_a_websockets_last_word_is_its_error(
    client: httpx.AsyncClient, server: RestServer, frame: str | bytes, status: int, said: str
) -> None:
    box = await make_box(client)
    url = server.websocket(f"/v1/sandboxes/{box}/exec")
    async with connect(url, additional_headers=server.headers()) as socket:
        await socket.send(frame)
        error = json.loads(await socket.recv())["error"]
        assert (error["status"], said in error["message"]) == (status, True)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 4000 + status
    with pytest.raises(InvalidStatus) as caught:  # who is not let in sends no frame
        await connect(url)
    assert caught.value.response.status_code == 401
    assert json.loads(caught.value.response.body or b"")["code"] == "unauthenticated"


async def test_a_vanished_websocket_ends_its_command(client: httpx.AsyncClient, server: RestServer) -> None:
    box = await make_box(client)
    url = server.websocket(f"/v1/sandboxes/{box}/exec")
    async with connect(url, additional_headers=server.headers()) as socket:
        start = {"argv": ["bash", "-c", "echo $$; exec sleep 600"], "timeout": "600s"}
        await socket.send(json.dumps({"start": start}))
        pid = int(base64.b64decode(json.loads(await socket.recv())["stdout"]["data"]))
        socket.transport.abort()
    await until(lambda: not psutil.pid_exists(pid))


# -- who may


async def test_without_tokens_only_pages_of_its_own_may_call() -> None:
    with start_embedded(["--insecure", "--http=127.0.0.1:0", "--workers=1"]) as server:
        host = server.http.removeprefix("http://")
        async with httpx.AsyncClient(base_url=server.http, timeout=60) as client:
            for headers, status in (
                ({}, 200),
                ({"origin": server.http}, 200),
                ({"origin": "http://evil.example"}, 403),
                ({"origin": "null"}, 403),
                ({"host": "evil.example"}, 403),
                ({"host": f"localhost:{host.rpartition(':')[2]}"}, 200),
            ):
                assert (await client.get("/v1/envs", headers=headers)).status_code == status, headers
        with pytest.raises(Exception, match="403"):
            async with connect(
                f"ws://{host}/v1/sandboxes/x/exec",
                origin="http://evil.example",  # type: ignore[arg-type]
            ):
                pass


async def test_an_sdk_speaks_rest_over_tls(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    tls = [f"--cert={tmp_path}/server.pem", f"--key={tmp_path}/server.key", f"--client-ca={tmp_path}/ca.pem"]
    with guarded_rest(tmp_path, tls) as server:
        assert server.url.startswith("https://")
        files = {
            "ca": f"{tmp_path}/ca.pem",
            "cert": f"{tmp_path}/client.pem",
            "key": f"{tmp_path}/client.key",
        }
        async with Client(server.url, credentials=Credentials(token=server.key, **files)) as client:
            env = await client.make("toy")
            await env.reset("train/0", 1)
            assert (await env.step("go")).info == {"steps": 1}
        async with Client(server.url, credentials=Credentials(**files), retry_for_s=0) as client:
            with pytest.raises(Unauthenticated):
                await client.make("toy")
        stranger = {**files, "cert": f"{tmp_path}/stranger.pem", "key": f"{tmp_path}/stranger.key"}
        async with Client(
            server.url, credentials=Credentials(token=server.key, **stranger), retry_for_s=0
        ) as client:
            with pytest.raises(ConnectionError):
                await client.make("toy")


async def test_a_stopping_server_ends_its_streams() -> None:
    async with embedded(["--insecure", "--http=127.0.0.1:0", "--workers=1", "--drain-s=0.2"]) as address:
        assert address.startswith("unix:")
    server = start_embedded(["--insecure", "--http=127.0.0.1:0", "--workers=1", "--drain-s=0.2"])
    async with httpx.AsyncClient(base_url=server.http, timeout=60) as client:
        async with client.stream("GET", "/v1/sandbox-events") as reply:
            closing = asyncio.create_task(asyncio.to_thread(server.close))
            said = "".join([text async for text in reply.aiter_text()])
            assert "event: " in said, "it says that the stream ended, and how"
        await closing
    assert server.end == "exit code 0"


@pytest.mark.first
async def test_tokens_of_other_tenants_see_nothing(client: httpx.AsyncClient, server: RestServer) -> None:
    box = await make_box(client)
    async with server.client(token(server.tokens, "red", "sandbox")) as other:
        assert (await other.get(f"/v1/sandboxes/{box}")).status_code == 404
        assert (await other.get(f"/v1/sandboxes/{box}/file?path=x")).status_code == 404
        assert box not in (await other.get("/v1/sandboxes")).text
        assert (await other.get("/v1/envs")).status_code == 403


# -- images


@pytest.mark.usefixtures("engine")
async def test_an_image_is_built_from_a_raw_body(client: httpx.AsyncClient) -> None:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w") as tar:
        for name, content in {"Dockerfile": b"FROM scratch\nCOPY hello /hello\n", "hello": b"hi"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    name = f"rest-test/{random.randbytes(6).hex()}"
    built = await client.post(
        f"/v1/images?start.name={name}",
        content=body.getvalue(),
        headers={"content-type": "application/x-tar"},
    )
    found = [json.loads(event["data"]) for event in events(built.text)]
    assert found[-2]["image"]["name"] == name, built.text
    build = found[0]["build_id"]
    log = b"".join(base64.b64decode(event["log"]["data"]) for event in found if "log" in event)
    half = await client.get(f"/v1/builds/{build}/events", headers={"last-event-id": str(len(log) // 2)})
    later = [json.loads(event["data"]) for event in events(half.text)]
    rest = b"".join(base64.b64decode(event["log"]["data"]) for event in later if "log" in event)
    assert rest == log[len(log) // 2 :]
    assert (await client.get(f"/v1/images/{name}")).json()["image_id"] == found[-2]["image"]["image_id"]
    assert (await client.delete(f"/v1/images/{name}")).status_code == 200
    assert (await client.get(f"/v1/images/{name}")).status_code == 404
