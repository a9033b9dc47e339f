"""Requests made to hold up the gateway: each is answered or refused, and no other session waits for it.

What is measured is the processor time that the event loop's thread takes for one turn of the loop, not time on a clock.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from agents_at_gateway import TEMPLATE, Scripted, World, rollout_request, world
from wires import CHAT, MESSAGES

from agent_runtime.calls.canonical import canonical_items, joined
from agent_runtime.chat import ChatMessage
from agent_runtime.gateway.session import Budget

MOST_CPU_S = 0.5
"""Of one turn of the loop. Before, one request took 15 s (5.8 MB) or did not end (28 MB)."""
WORDS = "some words here "


def _body(*messages: object, **more: object) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


FLOODS: dict[str, tuple[int, bytes]] = {
    "6 MB of neighbouring answers": (400, _body(*[{"role": "assistant", "content": "x" * 40}] * 80_000)),
    "27 MB of neighbouring answers": (400, _body(*[{"role": "assistant", "content": "x" * 250}] * 100_000)),
    "27 MB of the smallest messages": (
        400,
        b'{"messages":[' + b",".join([b'{"role":"assistant"}'] * 1_300_000) + b"]}",
    ),
    "27 MB in as many messages as there may be": (
        400,
        _body(*[{"role": "assistant", "content": WORDS * 210}] * 8000),
    ),
    "27 MB of one message": (400, _body({"role": "user", "content": WORDS * 1_700_000})),
    "27 MB of halves of characters": (
        400,
        b'{"messages":[{"role":"user","content":"' + b"\\ud83d" * 4_500_000 + b'"}]}',
    ),
    "10 MB of empty parts": (
        200,
        b'{"messages":['
        + b",".join([b'{"role":"user","content":[' + b",".join([b'""'] * 4000) + b"]}"] * 900)
        + b"]}",
    ),
    "2 MB of arguments": (
        400,
        _body(
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "c", "function": {"name": "bash", "arguments": "[" + "[]," * 700_000 + "[]]"}}
                ],
            }
        ),
    ),
    "60,000 tools": (
        400,
        _body(
            {"role": "user", "content": "a"}, tools=[{"type": "function", "function": {"name": "t"}}] * 60_000
        ),
    ),
    "a body nested without end": (400, b'{"messages":' + b"[" * 3_000_000),
}


@asynccontextmanager
async def watched() -> AsyncIterator[list[float]]:
    """Yield a list of one number: the most processor time that few turns of this loop took in the block."""
    most = [0.0]

    async def watch() -> None:
        while True:
            begun = time.thread_time()
            await asyncio.sleep(0.001)
            most[0] = max(most[0], time.thread_time() - begun)

    gc.collect()
    gc.freeze()  # what tests before left behind is no gateway's to look through
    watching = asyncio.ensure_future(watch())
    try:
        yield most
    finally:
        gc.unfreeze()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def send(w: World, body: bytes, path: str = CHAT.path) -> int:
    """Send a body as a client in a process of its own would: in pieces, without time on this loop. Return the status."""
    host, _, port = w.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {w.session.key}\r\nconnection: close\r\n"
    )
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode())
    for start in range(0, len(body), 1 << 16):
        writer.write(body[start : start + (1 << 16)])
        await writer.drain()
    said = await reader.read()
    writer.close()
    return int(said.split(b" ", 2)[1])


@pytest.mark.parametrize("flood", FLOODS)
async def test_a_large_request_holds_up_no_other_session(flood: str) -> None:
    status, body = FLOODS[flood]
    async with world("one") as w:
        other = w.gateway.open(
            rollout_request("neighbour"),
            sampler=Scripted("two"),
            template=TEMPLATE,
            budget=Budget(turns=1 << 30, tokens=1 << 40),
        )
        async with watched() as most, httpx.AsyncClient(base_url=w.url, timeout=120) as client:
            sending = asyncio.ensure_future(send(w, body))
            asked = 0
            while not sending.done() or not asked:
                asked += 1
                reply = await client.post(
                    CHAT.path, json=CHAT.body(f"call {asked}"), headers=CHAT.headers(other.key)
                )
                assert reply.status_code == 200
            assert await sending == status
        assert most[0] < MOST_CPU_S
        await w.gateway.close(other)


async def test_chunks_of_one_byte_hold_up_nobody() -> None:
    async with world("one") as w, watched() as most:
        host, _, port = w.url.removeprefix("http://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = _body({"role": "user", "content": "x" * 60_000})
        head = f"POST {CHAT.path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {w.session.key}\r\nconnection: close\r\n"
        writer.write(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
        writer.write(b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        assert most[0] < MOST_CPU_S / 4


async def test_the_process_that_reads_may_die_and_the_next_body_is_read() -> None:
    async with world("one") as w:
        large = _body({"role": "user", "content": WORDS * 20_000})
        assert await send(w, large) == 400  # a full context
        reader = w.gateway._readers._large
        assert reader._process is not None
        os.kill(reader._process.pid, signal.SIGKILL)
        assert await send(w, large) in (400, 413)
        assert await send(w, _body({"role": "user", "content": "x" * 90_000}, x="y" * 200_000)) == 200
        assert reader._process is not None


async def test_nothing_is_left_of_the_processes_that_read() -> None:
    async with world("one") as w:
        assert await send(w, _body({"role": "user", "content": "x" * 90_000}, x="y" * 200_000)) == 200
        process = w.gateway._readers._large._process
        assert process is not None
    assert process.returncode is not None


@pytest.mark.parametrize("path", [CHAT.path, f"{MESSAGES.path}/count_tokens"])
async def test_a_large_request_is_read_as_a_small_one_is(path: str) -> None:
    """The same history, read beside and at once, is one request."""
    history = [
        {"role": "user", "content": "go"},
        *({"role": "assistant", "content": text} for text in ("one", "two")),
        {"role": "user", "content": "on"},
    ]
    async with world("one", "again") as w:
        large = json.dumps({"model": "m", "max_tokens": 50, "messages": history, "x": "y" * 200_000})
        small = json.dumps({"model": "m", "max_tokens": 50, "messages": history})
        for body in (large, small):
            assert await send(w, body.encode(), path) == 200
        if path == CHAT.path:
            assert len(w.policy.seen) == 1
            assert len((await w.record()).turns) == 1


def test_neighbouring_answers_are_joined_once() -> None:
    """Joined two by two, these would be 115 GB of copies."""
    messages = [ChatMessage("assistant", f"{number} {'x' * 3500}", "why") for number in range(8192)]
    (item,) = canonical_items(messages)
    assert item.end == len(messages)
    assert item.message == joined(messages)
    assert item.message.content.count("\n") == len(messages) - 1
