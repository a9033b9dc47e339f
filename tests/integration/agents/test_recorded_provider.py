"""Recording what a provider answers, and replaying it without the provider; the provider is a gateway of ours."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from agents_at_gateway import World, world
from wires import CHAT, WIRES, Wire

from agent_runtime.gateway import recording as recording_module
from agent_runtime.gateway.exchange import Receive, Scope, Send
from agent_runtime.gateway.http_server import serving
from agent_runtime.gateway.recording import Recorder, Replay, redacted
from agent_runtime.policy import PolicyError


async def post(url: str, key: str, wire: Wire, *said: str, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        return await client.post(wire.path, json=wire.body(*said, **more), headers=wire.headers(key))


@asynccontextmanager
async def recording(w: World, file: Path) -> AsyncIterator[tuple[str, str]]:
    """Record what the world's session answers; yield the recorder's URL and key."""
    async with Recorder(f"{w.url}/v1", w.session.key, file) as recorder, serving(recorder) as url:
        yield url, recorder.key


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_what_was_recorded_is_replayed_byte_for_byte(wire: Wire, stream: bool, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    async with world("one", "two") as w, recording(w, file) as (url, key):
        live = [await post(url, key, wire, *said, stream=stream) for said in (["a"], ["a", "one", "b"])]
    assert [reply.status_code for reply in live] == [200, 200]
    async with serving(Replay(file)) as url:
        for said, recorded in zip((["a"], ["a", "one", "b"]), live, strict=True):
            again = await post(url, "any", wire, *said, stream=stream)
            assert again.content == recorded.content
            assert again.headers["content-type"] == recorded.headers["content-type"]


async def test_no_key_is_written_and_none_but_the_recorders_is_served(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    async with world("one") as w, recording(w, file) as (url, key):
        assert (await post(url, "sk-wrong", CHAT, "a")).status_code == 401
        assert not file.exists()
        assert (await post(url, key, CHAT, f"my keys: {key} and sk-proj-abcdefgh12345678")).status_code == 200
        text = file.read_text()
        assert key not in text
        assert w.session.key not in text
        assert "abcdefgh12345678" not in text
        assert "my keys: <key>" in text


def test_what_looks_like_a_key_is_blanked_and_other_text_is_not() -> None:
    text = 'Bearer abcdefghijklmnop, sk-ant-api03-AbCdEfGhIjKl_-9, "task-force", ask-me'
    assert redacted(text) == 'Bearer <key>, sk-<key>, "task-force", ask-me'


async def test_errors_are_recorded_as_they_were_and_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    async with world(PolicyError("busy"), "one") as w, recording(w, file) as (url, key):
        live = [await post(url, key, CHAT, "a") for _ in range(2)]
    assert [reply.status_code for reply in live] == [503, 200]
    async with serving(Replay(file)) as url:
        again = [await post(url, "any", CHAT, "a") for _ in range(3)]
    assert [reply.status_code for reply in again] == [503, 200, 200]
    assert again[0].headers["retry-after"] == live[0].headers["retry-after"]


async def test_a_request_that_is_not_in_the_file_is_told_the_first_difference(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    async with world("one") as w, recording(w, file) as (url, key):
        await post(url, key, CHAT, "a", "one", "b")
    async with serving(Replay(file)) as url:
        refused = await post(url, "any", CHAT, "a", "two", "b")
        assert refused.status_code == 404
        message = refused.json()["error"]["message"]
        assert "run.jsonl" in message
        assert "message 2 is 'two', recorded was 'one'" in message
        assert "stream=False" in (await post(url, "any", CHAT, "a", "one", "b", stream=True)).text
        assert "tools differ" in (await post(url, "any", CHAT, "a", "one", "b", tools=False)).text


async def test_a_provider_that_cannot_be_reached_is_an_error_to_repeat(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    async with Recorder("http://127.0.0.1:9/v1", "k", file) as recorder, serving(recorder) as url:
        refused = await post(url, recorder.key, CHAT, "a")
    assert refused.status_code == 503
    assert "cannot be reached" in refused.text
    assert not file.exists()


@pytest.mark.parametrize("failure", ["timeout", "torn"])
async def test_a_provider_that_may_have_had_the_request_is_asked_once(
    failure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_module, "TIMEOUT", httpx.Timeout(0.3))
    file, asked = tmp_path / "run.jsonl", 0

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n")
        asked += 1
        if failure == "timeout":
            await reader.read()  # until the recorder hangs up
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-")
        writer.close()

    provider = await asyncio.start_server(silent, "127.0.0.1", 0)
    upstream = f"http://127.0.0.1:{provider.sockets[0].getsockname()[1]}/v1"
    async with provider, Recorder(upstream, "k", file) as recorder, serving(recorder) as url:
        refused = await post(url, recorder.key, CHAT, "a")
    assert asked == 1
    assert refused.status_code == 500
    assert "retry-after" not in refused.headers
    assert "gave no answer" in refused.text
    assert not file.exists()


async def test_a_stream_that_broke_off_is_replayed_broken_off(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"

    async def breaks(scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        await send({"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True})

    async with (
        serving(breaks) as upstream,
        Recorder(f"{upstream}/v1", "k", file) as recorder,
        serving(recorder) as url,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await post(url, recorder.key, CHAT, "a", stream=True)
    assert json.loads(file.read_text())["cut"] is True
    async with serving(Replay(file)) as url:
        with pytest.raises(httpx.RemoteProtocolError):
            await post(url, "any", CHAT, "a", stream=True)


async def test_a_client_that_leaves_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    asked = asyncio.Event()

    async def never(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await asyncio.sleep(3600)

    async with (
        serving(never) as upstream,
        Recorder(f"{upstream}/v1", "k", file) as recorder,
        serving(recorder) as url,
    ):
        leaving = asyncio.ensure_future(post(url, recorder.key, CHAT, "a"))
        await asked.wait()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
    assert not file.exists()


def test_a_file_that_is_no_recording_is_named(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text('{"path": 3}\n')
    with pytest.raises(ValueError, match=r"run\.jsonl, line 1 is no recorded answer"):
        Replay(file)
