"""E2B's own SDK, synchronous and asynchronous, against a ROCK server: what works, and that the rest says so."""

from __future__ import annotations

import asyncio
import gzip
import io
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from fences import why_not_isolated
from rest_servers import RestServer, guarded_rest

e2b = pytest.importorskip("e2b", reason="the e2b SDK is absent: its API is NOT tested. pip install e2b")

RAW = {"content-type": "application/octet-stream"}
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:e2b")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestServer]:
    with guarded_rest(tmp_path_factory.mktemp("e2b")) as running:
        yield running


@pytest.fixture
def options(server: RestServer) -> dict[str, Any]:
    """Return what E2B_API_KEY, E2B_API_URL and E2B_SANDBOX_URL would say."""
    url = f"{server.url}/e2b"
    return {"api_key": server.key, "api_url": url, "sandbox_url": url, "retries": 0}


@pytest.fixture
def box(options: dict[str, Any]) -> Iterator[Any]:
    made = e2b.Sandbox.create(timeout=600, metadata={"team": "a"}, envs={"NAME": "ROCK"}, **options)
    yield made
    made.kill()


def test_a_sandbox_lives_and_is_killed(box: Any, options: dict[str, Any]) -> None:
    assert box.is_running()
    info = box.get_info()
    assert (info.metadata, info.state.value) == ({"team": "a"}, "running")
    box.set_timeout(3600)
    assert (box.get_info().end_at - info.end_at).total_seconds() > 2000
    query = e2b.SandboxQuery(metadata={"team": "a"})
    assert box.sandbox_id in {
        found.sandbox_id for found in e2b.Sandbox.list(query=query, **options).next_items()
    }
    other = e2b.SandboxQuery(metadata={"team": "b"})
    assert e2b.Sandbox.list(query=other, **options).next_items() == []
    again = e2b.Sandbox.connect(box.sandbox_id, **options)
    assert again.commands.run("echo again").stdout == "again\n"
    assert box.kill()
    assert not box.is_running()
    assert not box.kill()
    with pytest.raises(e2b.SandboxException, match="not found"):
        box.commands.run("true")


def test_a_timeout_of_a_day_holds(options: dict[str, Any], server: RestServer) -> None:
    day_s = 24 * 3600
    box = e2b.Sandbox.create(timeout=600, **options)
    box.set_timeout(day_s - 600)
    long = e2b.Sandbox.create(timeout=2 * day_s, **options)
    with httpx.Client(base_url=server.url, headers=server.headers()) as client:
        for made, least_s in ((box, day_s - 600), (long, 2 * day_s)):
            info = client.get(f"/v1/sandboxes/{made.sandbox_id}").json()
            lives_s = datetime.fromisoformat(info["expires_at"]) - datetime.fromisoformat(info["created_at"])
            shown_s = made.get_info().end_at - made.get_info().started_at
            assert min(lives_s, shown_s).total_seconds() > least_s - 1
            made.kill()


def test_a_full_disk_is_said_as_e2b_says_it(tmp_path: Path) -> None:
    if why_not_isolated():
        pytest.skip(f"no isolation here, and so no limit of a disk: {why_not_isolated()}")
    part = bytes(3 << 19)  # a whole disk's would be too large for a file
    with guarded_rest(tmp_path, ["--isolation=namespaces"]) as server:
        with httpx.Client(base_url=server.url, headers=server.headers(), timeout=60) as client:
            small = {"spec": {"resources": {"disk_bytes": 2 << 20}}}
            made = client.post("/v1/sandboxes", json=small).json()["id"]
            file = f"/v1/sandboxes/{made}/file"
            assert client.put(file, params={"path": "one"}, content=part, headers=RAW).status_code == 200
            full = client.put(file, params={"path": "two"}, content=part, headers=RAW)
            assert (full.status_code, full.json()["code"]) == (507, "disk_full"), full.text
        url = f"{server.url}/e2b"
        box = e2b.Sandbox.connect(made, api_key=server.key, api_url=url, sandbox_url=url, retries=0)
        with pytest.raises(e2b.NotEnoughSpaceException, match="No space left"):
            box.files.write("more", part)
        box.kill()


PACKED = gzip.compress(b"x" * 9000, mtime=0)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(b"plain", "is no gzip data", id="none"),
        pytest.param(PACKED[:-9], "ends before its end mark", id="torn"),
        pytest.param(PACKED[:-4] + b"none", "is no gzip data", id="damaged"),
        pytest.param(b"", "ends before its end mark", id="empty"),
    ],
)
def test_an_upload_that_is_no_gzip_is_refused(box: Any, server: RestServer, body: bytes, said: str) -> None:
    reply = upload(box, server, body)
    assert (reply.status_code, said in reply.json()["message"]) == (400, True), reply.text
    assert not box.files.exists("sent")


def test_an_upload_of_several_gzip_members_is_whole(box: Any, server: RestServer) -> None:
    assert upload(box, server, gzip.compress(b"one") + gzip.compress(b"two")).status_code == 200
    assert box.files.read("sent") == "onetwo"


def upload(box: Any, server: RestServer, body: bytes) -> httpx.Response:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        given = client.post(f"/v1/sandboxes/{box.sandbox_id}/tokens", headers=server.headers())
        about = {"e2b-sandbox-id": box.sandbox_id, "x-access-token": given.json()["token"]}
        about |= {"content-encoding": "gzip", "content-type": "application/octet-stream"}
        return client.post("/e2b/files?path=sent", headers=about, content=body)


def test_a_paused_sandbox_goes_on_when_connected(box: Any, options: dict[str, Any]) -> None:
    box.commands.run("echo kept > file")
    box.pause()
    assert box.get_info().state.value == "paused"
    resumed = e2b.Sandbox.connect(box.sandbox_id, **options)
    assert resumed.files.read("file") == "kept\n"


def test_commands_tell_the_truth(box: Any) -> None:
    done = box.commands.run("echo $NAME; echo wrong >&2")
    assert (done.stdout, done.stderr, done.exit_code) == ("ROCK\n", "wrong\n", 0)
    with pytest.raises(e2b.CommandExitException) as failed:
        box.commands.run("echo half; exit 3")
    assert (failed.value.exit_code, failed.value.stdout) == (3, "half\n")
    heard: list[str] = []
    box.commands.run("for i in 1 2; do echo $i; done", on_stdout=heard.append)
    assert "".join(heard) == "1\n2\n"
    box.files.make_dir("sub")
    assert box.commands.run("pwd; echo $MORE", cwd="sub", envs={"MORE": "more"}).stdout.endswith(
        "/sub\nmore\n"
    )
    assert len(box.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout) == 3_000_000
    with pytest.raises(e2b.TimeoutException):
        box.commands.run("sleep 60", timeout=0.3)


def test_background_commands_are_found_again(box: Any) -> None:
    echo = box.commands.run("cat", background=True, stdin=True)
    box.commands.send_stdin(echo.pid, "hello")
    box.commands.close_stdin(echo.pid)
    assert echo.wait().stdout == "hello"
    sleep = box.commands.run("sleep 600", background=True, timeout=0)
    assert [process.pid for process in box.commands.list()] == [sleep.pid]
    sleep.disconnect()
    found = box.commands.connect(sleep.pid)
    assert found.kill()
    with pytest.raises(e2b.CommandExitException) as killed:
        found.wait()
    assert killed.value.error == "signal: killed"
    assert not box.commands.kill(sleep.pid)
    with pytest.raises(e2b.NotFoundException):
        box.commands.connect(sleep.pid)


def test_files_are_what_was_written(box: Any) -> None:
    assert box.files.write("a/b.txt", "é\n").path == "a/b.txt"
    assert box.files.read("a/b.txt") == "é\n"
    odd = bytes(range(256)) * 1000 + b"\r\n--x\r\n"
    box.files.write("bin", odd)
    assert bytes(box.files.read("bin", format="bytes")) == odd
    box.files.write("stream", io.BytesIO(odd))
    assert b"".join(box.files.read("stream", format="stream")) == odd
    box.files.write("packed", "z" * 100_000, gzip=True)
    assert box.files.get_info("packed").size == 100_000
    box.files.write_files([{"path": "m1", "data": "1"}, {"path": "m2", "data": b"2"}])
    assert box.files.read("m1") + box.files.read("m2") == "12"
    assert [(file.name, file.path) for file in box.files.list("a")] == [("b.txt", "a/b.txt")]
    assert {file.name for file in box.files.list(".", depth=2)} >= {"a", "b.txt", "m1"}
    assert (box.files.exists("m1"), box.files.exists("none")) == (True, False)
    assert (box.files.make_dir("d/e"), box.files.make_dir("d/e")) == (True, False)
    assert box.files.rename("m1", "d/m1").path == "d/m1"
    box.files.remove("d")
    assert not box.files.exists("d/m1")
    with pytest.raises(e2b.FileNotFoundException):
        box.files.read("none")


@pytest.mark.parametrize(
    ("act", "named"),
    [
        (lambda box, _: box.pty.create(e2b.PtySize(24, 80)), "pty"),
        (lambda box, _: box.files.watch_dir("."), "CreateWatcher"),
        (lambda box, _: box.commands.run("id", user="root"), "one user"),
        (lambda box, _: box.get_metrics(), "metrics"),
        (lambda box, options: e2b.Sandbox.create(mcp={"exa": {}}, **options), "mcp"),
    ],
)
def test_what_is_not_offered_says_so(
    box: Any, options: dict[str, Any], act: Callable[..., object], named: str
) -> None:
    with pytest.raises(e2b.SandboxException, match=named) as caught:
        act(box, options)
    assert "501" in str(caught.value) or "UNIMPLEMENTED" in str(caught.value)


def test_a_wrong_key_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(e2b.AuthenticationException, match="malformed API token"):
        e2b.Sandbox.create(**{**options, "api_key": "e2b_nonsense"})


async def test_the_asynchronous_sdk_works_as_well(options: dict[str, Any]) -> None:
    box = await e2b.AsyncSandbox.create(**options)
    said = await asyncio.gather(*(box.commands.run(f"echo {number}") for number in range(8)))
    assert [done.stdout for done in said] == [f"{number}\n" for number in range(8)]
    await box.files.write("x", "y")
    assert await box.files.read("x") == "y"
    assert [file.name for file in await box.files.list(".")] == ["x"]
    assert await box.is_running()
    assert await box.kill()
    assert not await box.is_running()
