"""A call of a tool that is not on offer is malformed: its history is continued however the agent tells of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agent_session import TOOLS, Session, called, echo, system, tool, use, user
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.calls.labels import account
from agent_runtime.calls.tree import Drift
from agent_runtime.chat import ChatMessage
from agent_runtime.templates.textual import read_hermes, read_llama
from agent_runtime.types import TurnFault

START = [system(), user("Fix it.")]
UNKNOWN = called("I look.", ("web_search", '{"query": "a bug"}'))
LS = called("I read.", ("bash", '{"command": "ls"}'))
COMPLAINT = user("There is no tool web_search. Call bash or edit.")


@pytest.mark.parametrize(
    ("read", "text"),
    [(read_hermes, UNKNOWN), (read_llama, '{"name": "web_search", "parameters": {"query": "a bug"}}')],
)
def test_a_tool_that_is_not_on_offer_is_a_malformed_call_with_its_name(read, text):
    parsed = read(text, TOOLS)
    assert [(each.name, each.arguments) for each in parsed.tool_calls] == [
        ("web_search", '{"query": "a bug"}')
    ]
    assert "not on offer" in parsed.malformed
    assert not read(LS, TOOLS).malformed


@pytest.mark.parametrize(
    "told",
    [
        ChatMessage("assistant", "I look.", tool_calls=(use("invalid", '{"tool": "web_search"}'),)),
        ChatMessage("assistant", "I look."),
        ChatMessage("assistant", "I look.", tool_calls=(use("web_search", '{"query":"a bug"}'),)),
    ],
    ids=["renamed, as opencode does", "its call left out", "as it was"],
)
def test_its_echo_is_continued_from_the_sampled_ids(told):
    session = Session()
    first = session.ask(START, UNKNOWN)
    result = tool("no such tool") if told.tool_calls else COMPLAINT
    history = [*START, told, result]
    second = session.ask(history, LS)
    third = session.ask([*history, echo(second), tool("a.py")], "Done.")
    assert (second.parent, third.parent) == (first, second)
    assert not session.tree.drift
    assert session.labels() == ["main"] * 3
    assert account(session.tree).malformed == 1
    assert session.record().turn_faults == (TurnFault.ILLEGAL, TurnFault.NONE, TurnFault.NONE)
    session.check()


def test_one_bad_call_of_two_may_be_left_out_of_the_echo():
    session = Session()
    first = session.ask(START, called("Both.", ("web_search", "{}"), ("bash", '{"command": "ls"}')))
    kept = (use("bash", '{"command":"ls"}', "call_1"),)
    told = ChatMessage("assistant", "Both.", tool_calls=kept)
    assert session.ask([*START, told, tool("a.py", "call_1")]).parent is first
    padded = use("bash", '{"command":' + " " * 5000 + '"ls"}', "call_1")
    assert session.ask([*START, replace(told, tool_calls=(padded,)), tool("", "call_1")]).parent is None
    otherwise = replace(told, tool_calls=(use("bash", '{"command":"rm a.py"}', "call_1"),))
    assert session.ask([*START, otherwise, tool("", "call_1")]).drift is Drift.ANSWER_CALLS


def test_a_dropped_answer_is_shown_with_the_complaint_and_is_an_error():
    """As mini-swe-agent does: its answer is gone, the complaint stands in its place."""
    session = Session()
    first = session.ask(START, UNKNOWN)
    history = [*START, COMPLAINT]
    second = session.ask(history, LS)
    third = session.ask([*history, echo(second), tool("a.py")], "Done.")
    assert (second.parent, third.parent) == (first, second)
    assert not session.tree.drift
    assert session.labels() == ["error", "main", "main"]
    assert len(list(session.record().branches())) == 1
    session.check()


@pytest.mark.parametrize("errors", [1, 2, 3])
def test_an_exchange_that_is_dropped_once_a_later_answer_is_good_costs_no_context(errors):
    """As SWE-agent does: it asks again with the answer's text and a complaint, then forgets both."""
    session = Session()
    asked = list(START)
    for number in range(errors):
        session.ask(asked, called(f"I look {number}.", ("web_search", "{}")))
        asked = [*asked, ChatMessage("assistant", f"I look {number}."), user(f"No such tool, {number}.")]
    good = session.ask(asked, LS)
    later = session.ask([*START, echo(good), tool("a.py")], LS)
    last = session.ask([*START, echo(good), tool("a.py"), echo(later), tool("b.py")], "Done.")
    assert (later.parent, last.parent) == (good, later)
    assert not session.tree.drift
    assert session.labels() == ["error"] * errors + ["main"] * 3
    session.check()


def test_a_good_answer_that_is_dropped_still_costs_a_context():
    session = Session()
    session.ask(START, LS)
    assert session.ask([*START, COMPLAINT], LS).drift is Drift.ANSWER_DROPPED


def test_a_malformed_answer_that_never_arrived_is_not_shown_again():
    session = Session()
    session.ask(START, UNKNOWN, deliver=False)
    second = session.ask([*START, user("Are you there?")], LS)
    assert second.parent is None
    assert session.labels()[0] == "error"


HABITS = st.sampled_from(["keeps", "renames", "leaves the call out", "drops the answer", "forgets both"])


@given(st.lists(st.tuples(st.booleans(), HABITS), min_size=1, max_size=8))
def test_whatever_becomes_of_malformed_answers_there_is_one_branch_of_what_the_engine_saw(steps):
    session, history = Session(), list(START)
    forgotten = None
    for number, (bad, habit) in enumerate(steps):
        name = "web_search" if bad else "bash"
        call = session.ask(forgotten or history, called(f"Step {number}.", (name, "{}")))
        told, complaint = echo(call), user(f"No such tool, {number}.")
        if not bad:
            history, forgotten = [*history, told, tool(f"result {number}")], None
        elif habit == "drops the answer":
            history, forgotten = [*(forgotten or history), complaint], None
        elif habit == "forgets both":
            forgotten = [*(forgotten or history), replace(told, tool_calls=()), complaint]
        else:
            calls = {"keeps": told.tool_calls, "renames": (use("invalid", '{"n": 1}'),)}.get(habit, ())
            answer = tool(f"no such tool, {number}") if calls else complaint
            history, forgotten = [*(forgotten or history), replace(told, tool_calls=calls), answer], None
    session.ask(forgotten or history, "Done.")
    assert not session.tree.drift
    assert len(list(session.record().branches())) == 1
    session.check()


def test_many_malformed_answers_that_are_alike_are_looked_through_once():
    """Two alike at each of 60 places: a search of every way through them would not end."""
    session = Session()
    asked = list(START)
    for number in range(60):
        bad = called("I look.", ("web_search", "{}"))
        session.ask(asked, bad)
        first = session.ask(asked, bad)
        asked = [*asked, echo(first), user(f"No such tool, {number}.")]
    strange = ChatMessage("assistant", "Nobody said this.")
    assert session.ask([*START, strange, user("Go on.")], LS).parent is None
    session.check()
