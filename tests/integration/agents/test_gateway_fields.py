"""Stop texts, tool choices and several answers at the gateway: what the agent reads, and what is recorded."""

from __future__ import annotations

import httpx
import numpy as np
import pytest
from agents_at_gateway import TEMPLATE, Scripted, chat, rollout_request, world
from wires import CHAT, MESSAGES, WIRES, Wire, events

from agent_runtime.chat import Refusal, RefusalKind
from agent_runtime.gateway.server import Gateway
from agent_runtime.gateway.session import SessionEnd
from rock_env import plugins
from trainer.protocols.engines import EngineSpec

pytestmark = pytest.mark.first

CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "ls"}}\n</tool_call>'
STOPS = {"chat": {"stop": ["###", "!!"]}, "messages": {"stop_sequences": ["###", "!!"]}}


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=lambda wire: wire.name)
@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
async def test_an_answer_ends_before_a_stop_text_and_its_tokens_stay(wire: Wire, stream: bool) -> None:
    async with world("Observe.###never", "Done.") as w:
        reply = await w.post(wire, "a", stream=stream, **STOPS[wire.name])
        assert reply.status_code == 200, reply.text
        assert wire.text(reply.content, stream=stream) == "Observe."
        if wire is MESSAGES:
            told = list(events(reply.content))[-2]["delta"] if stream else reply.json()
            assert (told["stop_reason"], told["stop_sequence"]) == ("stop_sequence", "###")
        elif not stream:
            assert reply.json()["choices"][0]["finish_reason"] == "stop"
        await w.post(wire, "a", "Observe.", "b")
        trajectory = await w.record()  # and checks that the next prompt goes on from what was sampled
        sampled = TEMPLATE.encode_answer("Observe.###")[:-1]
        assert np.array_equal(trajectory.turns[0].completion_ids, sampled)
        assert trajectory.turns[0].finish_reason == "stop"
        assert trajectory.turns[1].parent == 0
        assert not w.session.tree.drift


async def test_the_first_of_several_stop_texts_counts() -> None:
    async with world("one!!two###three") as w:
        reply = (await w.post(MESSAGES, "a", stop_sequences=["###", "!!"])).json()
        assert (reply["content"][0]["text"], reply["stop_sequence"]) == ("one", "!!")


async def test_a_stop_text_within_a_call_leaves_no_half_call() -> None:
    async with world(f"I look. {CALL}") as w:
        reply = (await w.post(CHAT, "a", stop="arguments")).json()["choices"][0]
        assert not reply["message"].get("tool_calls")
        assert "arguments" not in reply["message"]["content"]
        await w.record()


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=lambda wire: wire.name)
async def test_an_engine_that_cannot_stop_refuses(wire: Wire) -> None:
    gateway = Gateway()
    policy = Scripted("one", stops=False)
    async with gateway.serving() as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        session = gateway.open(rollout_request(), sampler=policy, template=TEMPLATE)
        body = wire.body("a", **STOPS[wire.name])
        refused = await client.post(wire.path, json=body, headers=wire.headers(session.key))
        assert refused.status_code == 400
        assert "cannot end an answer at a text" in refused.json()["error"]["message"]
        assert not policy.seen
        assert await gateway.close(session) is SessionEnd.REFUSED


@pytest.mark.parametrize(("name", "stops"), [("coder", False), ("tiny", True), ("hf", True)])
def test_an_engine_says_whether_it_can_stop(name: str, stops: bool) -> None:
    spec = plugins.load("ale.engines", name)
    assert isinstance(spec, EngineSpec)
    assert spec.stops is stops


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_no_choice_of_tools_yields_no_calls(wire: Wire) -> None:
    none: object = {"type": "none"} if wire is MESSAGES else "none"
    async with world(f"I look.\n{CALL}", "Done.") as w:
        reply = await w.post(wire, "a", tool_choice=none)
        assert b"tool_use" not in reply.content.replace(b"tool_use_id", b"")
        assert b'"tool_calls":' not in reply.content
        assert b'"function_call"' not in reply.content
        text = wire.text(reply.content, stream=False)
        assert CALL in text
        await w.post(wire, "a", text, "b")
        assert (await w.record()).turns[1].parent == 0


async def test_requests_with_other_seeds_are_other_samples_as_the_refusal_of_n_says() -> None:
    async with world("one", "two", "three") as w:
        refused = await w.post(CHAT, "a", n=33)
        assert refused.status_code == 400
        assert "another `seed`" in refused.text
        assert refused.json()["error"]["param"] == "n"
        said = [CHAT.text((await w.post(CHAT, "a", seed=seed)).content, stream=False) for seed in (1, 2, 1)]
        assert said == ["one", "two", "one"]
        seeds = {seen.seed for seen in w.policy.seen}
        assert len(seeds) == 2
        assert not seeds & {1, 2}


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_the_list_of_models_names_the_context(wire: Wire) -> None:
    async with world() as w, httpx.AsyncClient(base_url=w.url, timeout=60) as client:
        for path in ("/v1/models", "/v1/models/policy"):
            told = (await client.get(path, headers=wire.headers(w.session.key))).json()
            card = told["data"][0] if path.endswith("models") else told
            assert card["max_input_tokens" if wire is MESSAGES else "context_length"] == w.session.max_context


async def test_a_session_asked_in_process_refuses_alike() -> None:
    gateway = Gateway()
    session = gateway.open(rollout_request(), sampler=Scripted(stops=False), template=TEMPLATE)
    with pytest.raises(Refusal) as refused:
        session.ask(chat("a", stop=("x",)))
    assert refused.value.kind is RefusalKind.BAD_REQUEST
    await gateway.close(session)
