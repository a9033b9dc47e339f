"""What calls were for where neither answers nor tools alone say it: asides, refused requests, an agent's own word."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest
from agent_session import TOOLS, Session, called, echo, system, tool, user
from agents_at_gateway import Step, chat, world
from open_sessions import opened, refusal
from wires import WIRES, Wire

from agent_runtime.calls.labels import labels
from agent_runtime.calls.tree import Drift
from agent_runtime.chat import Asked, ChatMessage, Refusal, RefusalKind
from agent_runtime.policy import PolicyError, SampleRequest
from agent_runtime.types import TurnLabel

START = [system(), user("Fix it.")]
LS = called("I look.", ("bash", '{"command": "ls"}'))
SUMMARY = "The task is to fix the failing test of the parser, whose bug is in line 40."


def test_a_tool_less_aside_that_continues_the_history_is_a_side_call():
    session = Session()
    first = session.ask(START, LS)
    history = [*START, echo(first), tool("a.py")]
    session.ask([*history, user("Name this conversation.")], "Fixing it", tools=())
    session.ask(history, "Done.")
    assert session.labels() == ["main", "side", "main"]
    session.check()


def test_what_goes_on_from_an_aside_is_of_it():
    session = Session()
    first = session.ask(START, LS)
    question = [*START, echo(first), tool("a.py"), user("Name this conversation.")]
    name = session.ask(question, "Fixing it", tools=())
    session.ask([*question, echo(name), user("Shorter.")], "Fix", tools=())
    assert session.labels() == ["main", "side", "side"]


def test_an_answer_without_tools_that_the_history_keeps_is_no_aside():
    session = Session()
    first = session.ask(START, LS)
    history = [*START, echo(first), tool("a.py"), user("What is wrong?")]
    second = session.ask(history, "The operator.", tools=())
    session.ask([*history, echo(second), user("Fix it then.")], LS)
    assert session.labels() == ["main", "main", "main"]


@pytest.mark.parametrize("conversation", ["", "helper"])
def test_a_summary_asked_aside_leaves_its_conversation_what_it_was(conversation):
    session = Session()
    session.ask([system("Another."), user("The task.")], LS)
    first = session.ask(START, LS, asked=Asked.SUB_AGENT if conversation else Asked.MAIN)
    session.ask([*START, echo(first), tool("a.py"), user("Sum up.")], SUMMARY, tools=())
    after = session.ask([START[0], user(f"This goes on:\n{SUMMARY}")], LS)
    assert after.drift is Drift.COMPACTION
    of = "sub_agent" if conversation else "main"
    assert session.labels() == ["main", of, "summary", of]


def test_main_is_what_an_agent_says_is_main():
    session = Session()
    session.ask([system("You name things."), user("A name?")], LS, asked=Asked.SIDE)
    session.ask(START, LS, tools=TOOLS[:1], asked=Asked.MAIN)
    session.ask([system("You are another."), user("Go on.")], LS, asked=Asked.MAIN)
    assert session.labels() == ["side", "main", "main"]


async def overflows(_: SampleRequest) -> str:
    raise Refusal(RefusalKind.CONTEXT_OVERFLOW, "the context is full", details=(("limit", 1), ("got", 2)))


@pytest.mark.parametrize("step", [overflows, PolicyError("gone")], ids=["overflow", "failure"])
async def test_an_answer_whose_command_ran_is_no_error_because_the_next_request_was_refused(
    step: Step,
) -> None:
    """The agent has run it and says so; told that there is no room, it leaves its newest exchange out."""
    session, _ = opened("I look.", "I fix.", step, "Done.")
    await session.answer(chat("a"))
    await session.answer(chat("a", "I look.", "b"))
    await refusal(session, chat("a", "I look.", "b", "I fix.", "fixed"))
    short = chat("a", "I look.", "b")
    await session.answer(replace(short, messages=(*short.messages, ChatMessage("user", "Make it short."))))
    assert labels(session.tree) == [TurnLabel.MAIN] * 3
    await session.close()


async def test_an_answer_that_no_request_had_is_still_an_error() -> None:
    session, _ = opened("I look.", "I fix.", "Done.")
    await session.answer(chat("a"))
    await session.answer(chat("a", "I look.", "b"))
    short = chat("a", "I look.", "b")
    await session.answer(replace(short, messages=(*short.messages, ChatMessage("user", "Make it short."))))
    assert labels(session.tree) == [TurnLabel.MAIN, TurnLabel.ERROR, TurnLabel.MAIN]
    await session.close()


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
async def test_an_agent_labels_its_requests_by_a_header_in_every_dialect(wire: Wire) -> None:
    async with world("one") as w, httpx.AsyncClient(base_url=w.url, timeout=60) as client:
        statuses = []
        for number, more in enumerate(
            (
                {},
                {"X-ALE-Label": "sub_agent", "X-ALE-Conversation": "helper-1"},
                {"X-ALE-Label": "summary"},
                {"X-ALE-Label": "side"},
                {"X-ALE-Label": "main"},
                {"X-ALE-Label": "error"},
                {"X-ALE-Conversation": "x" * 129},
            )
        ):
            headers = {**wire.headers(w.session.key), **more}
            reply = await client.post(wire.path, json=wire.body(f"task {number}"), headers=headers)
            statuses.append(reply.status_code)
        assert statuses == [200] * 5 + [400] * 2
        assert (
            "main, sub_agent, summary, side"
            in (
                await client.post(
                    wire.path,
                    json=wire.body("a"),
                    headers=wire.headers(w.session.key) | {"X-ALE-Label": "best"},
                )
            ).text
        )
        trajectory = await w.record()
        assert [label.value for label in trajectory.turn_labels] == [
            "main",
            "sub_agent",
            "summary",
            "side",
            "main",
        ]
