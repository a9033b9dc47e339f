"""Agents before the gateway over real sockets: the three wire formats, streams, repetitions, budgets and errors."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from agents_at_gateway import Gate, world
from waiting import until
from wires import CHAT, MESSAGES, WIRES, Wire

from agent_runtime.gateway.http_server import Limits
from agent_runtime.gateway.session import Budget, SessionEnd
from agent_runtime.policy import PolicyError
from agent_runtime.types import StopReason, TurnLabel

pytestmark = pytest.mark.first

CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_an_agent_plays_token_exactly(wire: Wire, stream: bool) -> None:
    async with world("I look.", "I fix.", "Done.") as w:
        said = ["fix it"]
        for turn in range(3):
            reply = await w.post(wire, *said, stream=stream)
            assert reply.status_code == 200, reply.text
            assert ("event-stream" in reply.headers["content-type"]) is stream
            said += [wire.text(reply.content, stream=stream), f"output {turn}"]
        assert said[1::2] == ["I look.", "I fix.", "Done."]
        trajectory = await w.record()
        assert trajectory.stop_reason is StopReason.TERMINATED
        assert [turn.parent for turn in trajectory.turns] == [None, 0, 1]
        assert set(trajectory.turn_labels) <= {TurnLabel.MAIN}
        assert not w.session.tree.drift


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_usage_on_the_wire_is_what_the_engine_saw(wire: Wire) -> None:
    async with world("one") as w:
        for said in (["a"], ["a", "one", "b"]):
            reply = await w.post(wire, *said)
            told = wire.usage(reply.content)
            assert told == (len(w.policy.seen[-1].prompt_ids), len(w.policy.sampled[-1]))


async def test_one_conversation_may_change_its_dialect() -> None:
    """claude-code falls back from streaming to JSON; a history is the same whatever carries it."""
    async with world("one", "two") as w:
        await w.post(CHAT, "a", stream=True)
        await w.post(CHAT, "a", "one", "b", stream=False)
        trajectory = await w.record()
        assert trajectory.turns[1].parent == 0


async def test_parallel_tool_calls_and_their_results() -> None:
    async with world(f"I look.\n{CALL}\n{CALL}", "done") as w:
        reply = (await w.post(CHAT, "a")).json()["choices"][0]
        calls = reply["message"]["tool_calls"]
        assert reply["finish_reason"] == "tool_calls"
        assert len({call["id"] for call in calls}) == 2
        echoed = [  # as agents do: arguments written anew
            {**call, "function": {"name": "bash", "arguments": json.dumps({"command": "ls"}, indent=1)}}
            for call in calls
        ]
        body = CHAT.body("a")
        body["messages"] += [
            {"role": "assistant", "content": "I look.", "tool_calls": echoed},
            *({"role": "tool", "tool_call_id": call["id"], "content": "a.py"} for call in calls),
        ]
        async with httpx.AsyncClient(base_url=w.url, timeout=60) as client:
            second = await client.post(CHAT.path, json=body, headers=CHAT.headers(w.session.key))
        assert second.status_code == 200
        trajectory = await w.record()
        assert trajectory.turns[1].parent == 0
        assert not w.session.tree.drift


# -- repetitions


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_the_same_request_after_its_answer_gets_the_stored_one(wire: Wire) -> None:
    async with world("one", "two") as w:
        first, second = await w.post(wire, "a"), await w.post(wire, "a")
        assert first.content == second.content
        assert len((await w.record()).turns) == 1


async def test_two_at_once_share_a_sample() -> None:
    gate = Gate("shared")
    async with world(gate) as w:
        asking = [asyncio.ensure_future(w.post(CHAT, "a")) for _ in range(2)]
        await w.policy.asked.wait()
        gate.open.set()
        first, second = await asyncio.gather(*asking)
        assert first.content == second.content
        assert len((await w.record()).turns) == 1


async def test_a_client_that_leaves_while_sampling_and_comes_back_gets_that_sample() -> None:
    gate = Gate("late")
    async with world(gate) as w:
        leaving = asyncio.ensure_future(w.post(CHAT, "a"))
        await w.policy.asked.wait()
        leaving.cancel()
        await until(lambda: w.session.end is SessionEnd.CLIENT_GONE)
        gate.open.set()
        reply = await w.post(CHAT, "a")
        assert CHAT.text(reply.content, stream=False) == "late"
        assert len((await w.record()).turns) == 1
        assert w.session.end is SessionEnd.EXITED


async def test_a_client_gone_mid_stream_supersedes_its_sample_when_it_is_back() -> None:
    long = "x" * (3 << 20)
    async with world(long, "again", budget=Budget(tokens=1 << 30), max_tokens=5 << 20) as w:
        async with (
            httpx.AsyncClient(base_url=w.url, timeout=60) as client,
            client.stream(
                "POST", CHAT.path, json=CHAT.body("a", stream=True), headers=CHAT.headers(w.session.key)
            ) as reply,
        ):
            async for _ in reply.aiter_bytes():
                break  # and hang up in the middle
        await until(lambda: w.session.end is SessionEnd.CLIENT_GONE)
        second = await w.post(CHAT, "a")
        assert CHAT.text(second.content, stream=False) == "again"
        await w.post(CHAT, "a", "again", "b")
        trajectory = await w.record()
        assert trajectory.turn_labels == (TurnLabel.SUPERSEDED, TurnLabel.MAIN, TurnLabel.MAIN)


# -- streams that wait


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_a_stream_shows_life_while_the_policy_thinks(wire: Wire) -> None:
    gate = Gate("at last")
    async with world(gate, limits=Limits(sign_of_life_s=0.05)) as w:
        got = b""
        async with (
            httpx.AsyncClient(base_url=w.url, timeout=60) as client,
            client.stream(
                "POST", wire.path, json=wire.body("a", stream=True), headers=wire.headers(w.session.key)
            ) as reply,
        ):
            assert reply.status_code == 200
            parts = 0
            async for part in reply.aiter_bytes():
                got += part
                parts += 1
                if parts == 3:
                    gate.open.set()
        assert wire.text(got, stream=True) == "at last"
        assert len((await w.record()).turns) == 1


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_an_error_after_the_stream_began_is_an_event_of_it(wire: Wire) -> None:
    async def fails(_: object) -> str:
        await asyncio.sleep(0.3)
        raise PolicyError("out of memory")

    async with world(fails, limits=Limits(sign_of_life_s=0.05)) as w:
        reply = await w.post(wire, "a", stream=True)
        assert reply.status_code == 200
        assert "out of memory" in reply.text
        assert "error" in reply.text


# -- refusals


@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_an_engine_that_fails_is_a_server_error_and_the_repetition_succeeds(
    wire: Wire, stream: bool
) -> None:
    async with world(PolicyError("out of memory"), "one") as w:
        refused = await w.post(wire, "a", stream=stream)
        assert refused.status_code >= 500
        assert int(refused.headers["retry-after"]) >= 1
        reply = await w.post(wire, "a", stream=stream)
        assert wire.text(reply.content, stream=stream) == "one"
        assert len((await w.record()).turns) == 1


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_a_full_context_is_a_400_that_agents_know(wire: Wire) -> None:
    words = {
        "chat": "context_length_exceeded",
        "responses": "context_length_exceeded",
        "messages": "prompt is too long",
    }
    async with world() as w:
        refused = await w.post(wire, "x" * 300_000)  # so long that it is read in a thread
        assert refused.status_code == 400
        assert words[wire.name] in refused.text
        assert await w.gateway.close(w.session) is SessionEnd.CONTEXT_FULL


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_a_used_up_budget_is_final(wire: Wire) -> None:
    async with world("one", budget=Budget(turns=1)) as w:
        await w.post(wire, "a")
        refused = await w.post(wire, "a", "one", "b")
        assert 400 <= refused.status_code < 500
        assert refused.status_code not in (408, 409, 429)  # which clients repeat
        assert "all 1 model calls" in refused.text
        assert (await w.record()).stop_reason is StopReason.MAX_TURNS


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 3}', b"\xff", b'{"a":' * 100_000])
async def test_a_body_that_is_no_request_is_a_400(wire: Wire, body: bytes) -> None:
    async with world() as w, httpx.AsyncClient(base_url=w.url, timeout=60) as client:
        refused = await client.post(wire.path, content=body, headers=wire.headers(w.session.key))
        assert refused.status_code == 400
        assert refused.json()["error"]["message"]
        assert w.session.end is SessionEnd.REFUSED


async def test_what_there_is_besides() -> None:
    async with world() as w, httpx.AsyncClient(base_url=w.url, timeout=60) as client:
        assert (await client.head("/")).status_code == 200
        assert (await client.get("/")).status_code == 200
        key = CHAT.headers(w.session.key)
        assert (await client.get("/v1/models")).status_code == 401
        assert (await client.get("/v1/models", headers=key)).json()["data"][0]["id"]
        assert (await client.get("/v1/models/m", headers=key)).json()["id"] == "m"
        for verb, path in [
            ("GET", "/v1/chat/completions"),
            ("POST", "/v1/embeddings"),
            ("POST", "/v1/messages/batches"),
        ]:
            missing = await client.request(verb, path, headers=key)
            assert missing.status_code == 404
            assert path in missing.json()["error"]["message"]


async def test_count_tokens_is_true() -> None:
    async with world("one") as w, httpx.AsyncClient(base_url=w.url, timeout=60) as client:
        body = MESSAGES.body("a")
        counted = await client.post(
            "/v1/messages/count_tokens", json=body, headers=MESSAGES.headers(w.session.key)
        )
        await w.post(MESSAGES, "a")
        assert counted.json() == {"input_tokens": len(w.policy.seen[0].prompt_ids)}
        assert len((await w.record()).turns) == 1


# -- where and who


async def test_the_key_may_stand_in_the_path_alone() -> None:
    async with world("one") as w, httpx.AsyncClient(timeout=60) as client:
        root = w.gateway.address(w.session)
        assert (await client.post(f"{root}{CHAT.path}", json=CHAT.body("a"))).status_code == 200
        mangled = {"authorization": "Bearer something-else"}
        reply = await client.post(f"{root}{CHAT.path}", json=CHAT.body("a", "one", "b"), headers=mangled)
        assert reply.status_code == 200
        assert (await client.head(root)).status_code == 200


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    async with world("one", where=tmp_path / "gateway") as w:
        transport = httpx.AsyncHTTPTransport(uds=w.url)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway", timeout=60) as client:
            reply = await client.post(CHAT.path, json=CHAT.body("a"), headers=CHAT.headers(w.session.key))
        assert CHAT.text(reply.content, stream=False) == "one"
