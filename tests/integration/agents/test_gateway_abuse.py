"""Who means no good to the gateway: strangers, neighbours, floods and clients that vanish. Others must not notice."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import httpx
import pytest
from agents_at_gateway import TEMPLATE, Gate, Scripted, World, rollout_request, world
from waiting import until
from wires import CHAT, WIRES, Wire

from agent_runtime.gateway.http_server import Limits
from agent_runtime.gateway.session import Session, SessionEnd
from rock_env.env import Verdict

SMALL = Limits(body_bytes=20_000, sign_of_life_s=0.05, stop_s=0.5)
IMPATIENT = Limits(head_s=3.0, body_s=3.0)
"""Long enough for an honest client on a busy machine."""


def neighbour(w: World, *script: str) -> Session:
    """Open a second session at the same gateway."""
    return w.gateway.open(rollout_request("neighbour"), sampler=Scripted(*script), template=TEMPLATE)


async def answers(w: World) -> None:
    """An honest agent is served as ever."""
    reply = await w.post(CHAT, "still there?")
    assert reply.status_code == 200


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_no_key_and_a_wrong_key_are_strangers(wire: Wire) -> None:
    async with world() as w, httpx.AsyncClient(base_url=w.url, timeout=60) as client:
        for headers in (
            {},
            wire.headers("sk-ale-wrong"),
            {"x-session": w.session.key, "cookie": w.session.key},
        ):
            refused = await client.post(wire.path, json=wire.body("a"), headers=headers)
            assert refused.status_code == 401
            assert w.session.key not in refused.text
        wrong = await client.post(
            f"/s/wrong{wire.path}", json=wire.body("a"), headers=wire.headers(w.session.key)
        )
        assert wrong.status_code == 401
        assert w.session.end is SessionEnd.NEVER_SPOKE


async def test_a_stranger_is_refused_before_its_body_is_there() -> None:
    async with world(limits=SMALL) as w:
        host, _, port = w.url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n" + b"x" * 100
        )
        writer.write_eof()
        await reader.read()
        writer.close()
        await answers(w)


async def test_another_sessions_key_reaches_that_session_and_nothing_of_ones_own() -> None:
    async with world("mine") as w:
        other = neighbour(w, "theirs")
        await w.post(CHAT, "a")
        async with httpx.AsyncClient(base_url=w.url, timeout=60) as client:
            reply = await client.post(CHAT.path, json=CHAT.body("a"), headers=CHAT.headers(other.key))
            assert CHAT.text(reply.content, stream=False) == "theirs"
            two = {**CHAT.headers(w.session.key), "x-api-key": other.key}
            assert (await client.post(CHAT.path, json=CHAT.body("b"), headers=two)).status_code == 401
            path = f"/s/{w.session.key}{CHAT.path}"
            assert (
                await client.post(path, json=CHAT.body("b"), headers=CHAT.headers(other.key))
            ).status_code == 401
        assert len((await w.record()).turns) == 1
        await w.gateway.close(other)
        assert len(other.record("toy@1", Verdict(0.0, passed=False)).turns) == 1


async def test_a_session_that_ended_says_so_and_keeps_its_turns() -> None:
    async with world("one") as w:
        await w.post(CHAT, "a")
        await w.gateway.close(w.session)
        refused = await w.post(CHAT, "a")
        assert 400 <= refused.status_code < 500
        assert "has ended (exited)" in refused.text
        assert len(w.session.record("toy@1", Verdict(1.0, passed=True)).turns) == 1


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_a_body_too_large_is_refused_in_the_dialects_form(wire: Wire) -> None:
    async with world(limits=SMALL) as w:
        refused = await w.post(wire, "x" * 30_000)
        assert refused.status_code == 413
        assert "larger than 20000 bytes" in refused.json()["error"]["message"]
        assert not w.policy.seen
        await answers(w)


async def test_a_hundred_slow_clients_hold_nobody_up_and_are_cut() -> None:
    async with world(limits=IMPATIENT) as w, AsyncExitStack() as stack:
        host, _, port = w.url.removeprefix("http://").rpartition(":")
        head = f"POST {CHAT.path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {w.session.key}\r\n".encode()
        readers = []
        for number in range(100):
            reader, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            writer.write(
                head[: 1 + number % len(head)] if number % 2 else head + b"content-length: 50\r\n\r\n{"
            )
            readers.append(reader)
        await answers(w)
        for reader in readers:
            async with asyncio.timeout(60):
                said = await reader.read()
            assert said == b"" or said.startswith(b"HTTP/1.1 400")
        assert len(w.policy.seen) == 1


async def test_an_answer_that_never_comes_ends_with_its_client() -> None:
    gate = Gate("never")
    async with world(gate, limits=SMALL) as w:
        async with (
            httpx.AsyncClient(base_url=w.url, timeout=60) as client,
            client.stream(
                "POST", CHAT.path, json=CHAT.body("a", stream=True), headers=CHAT.headers(w.session.key)
            ) as reply,
        ):
            async for _ in reply.aiter_bytes():
                break
        await until(lambda: w.session.end is SessionEnd.CLIENT_GONE)
        assert await w.gateway.close(w.session) is SessionEnd.CLIENT_GONE
        assert gate.cancelled
        failure = w.session.record("toy@1", Verdict(0.0, passed=False)).failure
        assert failure is not None
        assert failure.code == "agent_gone"


async def test_a_stop_ends_sessions_and_tells_who_waits() -> None:
    gate = Gate("never")
    async with world(gate, limits=SMALL) as w:
        waiting = asyncio.ensure_future(w.post(CHAT, "a"))
        await w.policy.asked.wait()
    refused = await waiting
    assert "has ended" in refused.text
    assert gate.cancelled
    with pytest.raises(httpx.ConnectError):
        await w.post(CHAT, "b")


async def test_nothing_is_left_of_clients_that_hang_up_at_any_time() -> None:
    async with world("one", limits=SMALL) as w:
        before = asyncio.all_tasks()
        for number in range(30):
            leaving = asyncio.ensure_future(w.post(CHAT, f"call {number}", stream=bool(number % 2)))
            await asyncio.sleep(0.002 * (number % 5))
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)
        await answers(w)
        await until(lambda: not w.session._tasks)
        await until(lambda: len(asyncio.all_tasks() - before) == 0)
        await w.record()
