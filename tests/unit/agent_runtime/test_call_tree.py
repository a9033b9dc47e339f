"""What the tree of calls makes of one habit of real agents each."""

from __future__ import annotations

from dataclasses import replace

import pytest
from agent_session import TOOLS, Session, called, echo, system, tool, use, user

from agent_runtime.calls.canonical import canonical_json, digest
from agent_runtime.calls.labels import account
from agent_runtime.calls.tree import Drift
from agent_runtime.chat import Asked, ChatMessage, ChatRequest, ToolSpec
from agent_runtime.types import TurnFault, TurnLabel

START = [system(), user("Fix it.")]
LS = called("I look.", ("bash", '{ "command": "ls",  "n": 1 }'))


def test_a_reserialised_answer_is_continued_from_the_sampled_ids():
    session = Session()
    first = session.ask(START, LS)
    told = ChatMessage(
        "assistant", "I look.\n", tool_calls=(use("bash", '{"n":1.0,"command":"ls"}', "toolu_9"),)
    )
    second = session.ask([*START, told, tool("a.py", "toolu_9")])
    assert (second.parent, second.drift) == (first, Drift.NONE)
    ids = first.completion.ids.tolist()
    at = len(session.seen[0])
    assert session.seen[1][: at + len(ids)] == session.seen[0] + ids
    session.check()


@pytest.mark.parametrize(
    "told",
    [
        [ChatMessage("assistant", "I look."), ChatMessage("assistant", "", tool_calls=(use("bash", "{}"),))],
        [ChatMessage("assistant", "I\nlook.", "a thought", (use("bash", ""),))],
        [ChatMessage("assistant", "I look.", "", (use("bash", " null "),))],
    ],
    ids=["in two messages", "with reasoning", "null arguments"],
)
def test_an_echo_is_known_in_every_dress(told):
    session = Session()
    first = session.ask(START, called("I look.", ("bash", "{}")))
    assert session.ask([*START, *told, tool("a.py")]).parent is first


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"content": "I looked."}, Drift.ANSWER_TEXT),
        ({"tool_calls": (use("bash", '{"command": "pwd", "n": 1}'),)}, Drift.ANSWER_CALLS),
        ({"tool_calls": (use("edit", '{"command": "ls", "n": 1}'),)}, Drift.ANSWER_CALLS),
        ({"tool_calls": ()}, Drift.ANSWER_CALLS),
    ],
)
def test_another_answer_opens_a_fresh_context(change, reason):
    session = Session()
    first = session.ask(START, LS)
    second = session.ask([*START, replace(echo(first), **change), tool("a.py")])
    assert (second.parent, second.drift, second.continues) == (None, reason, first)
    assert session.tree.drift == {reason: 1}
    third = session.ask([*START, replace(echo(first), **change), tool("a.py"), echo(second), user("More.")])
    assert third.parent is second, "the fresh context is continued like any other"
    assert session.labels() == ["main"] * 3
    session.check()


def test_a_malformed_call_that_the_agent_repairs_is_continued_as_it_was_sampled():
    session = Session()
    first = session.ask(START, called("I look.", ("bash", '{"command": "ls"')))
    assert first.parsed.malformed
    mended = ChatMessage("assistant", "I look.", tool_calls=(use("invalid", '{"error": "no JSON"}'),))
    second = session.ask([*START, mended, tool("no such tool")])
    assert second.parent is first
    assert account(session.tree).repaired == 1
    assert session.record().turn_faults == (TurnFault.ILLEGAL, TurnFault.NONE)
    assert session.record().illegal_actions == 1


def test_other_tools_are_another_context():
    session = Session()
    first = session.ask(START, LS)
    more = (*TOOLS, ToolSpec("web", "Search.", "{}"))
    second = session.ask([*START, echo(first), tool("a.py")], tools=more)
    assert (second.parent, second.drift) == (None, Drift.TOOLS)
    reordered = tuple(reversed([replace(each, parameters=f" {each.parameters}") for each in TOOLS]))
    assert session.ask([*START, echo(first), tool("b.py")], tools=reordered).parent is first


def test_another_system_message_is_named():
    session = Session()
    first = session.ask(START, LS)
    second = session.ask([system("It is Tuesday."), START[1], echo(first), tool("a.py")])
    assert second.drift is Drift.SYSTEM
    assert session.labels() == ["main", "main"]


def test_an_answer_that_nobody_sampled_is_named():
    session = Session()
    first = session.ask(START, LS)
    history = [*START, echo(first), tool("a.py"), ChatMessage("assistant", "Understood."), user("Go on.")]
    assert session.ask(history).drift in (Drift.ANSWER_INSERTED, Drift.HISTORY)


def test_a_title_asked_first_and_without_tools_is_a_side_call():
    session = Session()
    session.ask([system("Write a title."), user("Fix it.")], "Fixing it", tools=())
    session.ask(START, LS)
    assert session.labels() == ["side", "main"]
    assert account(session.tree).tokens[TurnLabel.SIDE] == len(session.tree.calls[0].completion.ids)


def test_without_any_tools_the_first_conversation_is_main_and_another_one_a_side_call():
    session = Session()
    first = session.ask(START, "ls", tools=())
    session.ask([*START, echo(first), user("a.py")], "rm", tools=())
    session.ask([system("Commit messages."), user("diff …")], "Remove a.py", tools=())
    assert session.labels() == ["main", "main", "side"]


def test_sub_agents_are_known_by_conversation_by_word_and_by_their_beginning():
    session = Session()
    session.ask(START, LS)
    errand = [system("You search."), user("Find a.py.")]
    session.ask(errand, LS, conversation="agent-7", tools=())
    session.ask([system(), user("Find b.py.")], LS, asked=Asked.SUB_AGENT)
    opening = session.ask([system("You plan."), user("Plan it.")], LS, tools=TOOLS[:1])
    session.ask(
        [system("You plan."), user("Plan it."), echo(opening), tool("ok")], "Planned.", tools=TOOLS[:1]
    )
    assert session.labels() == ["main", "sub_agent", "sub_agent", "sub_agent", "sub_agent"]


def test_the_same_prompt_after_a_lost_answer_supersedes_it_and_costs_no_second_context():
    session = Session()
    lost = session.ask(START, LS, deliver=False, stream=True)
    again = session.ask(START, LS)
    assert session.labels() == ["superseded", "main"]
    assert again.context_ids is lost.context_ids
    assert again.drift is Drift.NONE
    session.check()


def test_a_repeated_request_has_the_key_of_the_first():
    session = Session()
    session.ask(START, LS)
    key, find = session.match.key, session.tree.match
    assert find(ChatRequest(tuple(START), TOOLS, stream=True)).key == key
    assert find(ChatRequest(tuple(START), TOOLS, max_tokens=5)).key != key
    assert find(ChatRequest(tuple(START), TOOLS, conversation="other")).key != key
    assert find(ChatRequest((*START, user("More.")), TOOLS)).key != key


def test_an_answer_asked_again_although_delivered_was_of_no_use():
    session = Session()
    session.ask(START, "")
    session.ask(START, LS)
    assert session.labels() == ["error", "main"]


def test_an_answer_that_never_arrived_is_not_trained_on():
    session = Session()
    first = session.ask(START, LS)
    session.ask([*START, echo(first), tool("a.py")], "Done.", deliver=False)
    assert session.labels() == ["main", "error"]


def test_a_dropped_answer_costs_a_branch():
    session = Session()
    first = session.ask(START, LS)
    history = [*START, echo(first), tool("a.py")]
    session.ask(history, "nonsense")
    third = session.ask([*history, user("Call a tool.")], LS)
    assert third.parent is first
    assert session.labels() == ["main", "error", "main"]
    assert not session.tree.drift
    session.check()


def test_a_dropped_first_answer_costs_a_context():
    session = Session()
    session.ask(START, "nonsense")
    assert session.ask([*START, user("Call a tool.")], LS).drift is Drift.ANSWER_DROPPED
    assert session.labels() == ["error", "main"]


SUMMARY = (
    "<analysis>none of this is kept</analysis>\n"
    "1. The task is to fix the failing test of the parser.\n2. The file parser.py was read, the bug is in line 40.\n"
)


@pytest.mark.parametrize("with_tools", [True, False])
def test_compaction_is_known_by_the_summary_it_begins_with(with_tools):
    session = Session()
    first = session.ask(START, LS)
    history = [*START, echo(first), tool("a.py"), user("Sum up what was done.")]
    session.ask(history, SUMMARY, tools=TOOLS if with_tools else ())
    told = user("This goes on from before:\n" + "\n".join(SUMMARY.splitlines()[1:]))
    after = session.ask([START[0], told], LS)
    assert after.drift is Drift.COMPACTION
    assert session.labels() == ["main", "summary", "main"]
    session.ask([START[0], told, echo(after), tool("b.py")], "Done.")
    assert session.labels() == ["main", "summary", "main", "main"]
    session.check()


def test_a_summary_told_as_the_first_answer_of_a_shorter_history():
    session = Session()
    first = session.ask(START, LS)
    session.ask([*START, echo(first), tool("a.py"), user("Sum up.")], SUMMARY)
    told = [START[0], user("What did we do?"), ChatMessage("assistant", SUMMARY.strip()), user("Go on.")]
    assert session.ask(told, LS).drift is Drift.COMPACTION
    assert session.labels() == ["main", "summary", "main"]


def test_a_summary_asked_without_tools_is_known_as_the_first_answer_of_a_longer_history():
    session = Session()
    first = session.ask(START, LS)
    session.ask([system("You sum up."), user("Sum up: Fix it.")], SUMMARY, tools=())
    told = [START[0], user("What did we do?"), ChatMessage("assistant", SUMMARY.strip())]
    after = session.ask([*told, user("You were here:"), echo(first), tool("a.py")], LS)
    assert after.drift is Drift.COMPACTION
    assert session.labels() == ["main", "summary", "main"]
    session.check()


def test_an_answer_that_a_longer_history_begins_with_is_no_summary():
    session = Session()
    first = session.ask(START, "I wonder what to do.")
    told = [system("You are another."), START[1], echo(first), user("Go on."), echo(first), user("Go on.")]
    assert session.ask(told).drift is Drift.SYSTEM
    assert session.labels() == ["main", "main"]


def test_a_short_summary_is_known_without_the_tags_that_the_agent_cuts_away():
    session = Session()
    first = session.ask(START, LS)
    history = [*START, echo(first), tool("a.py"), user("Sum up.")]
    session.ask(history, "<summary>[summary] The parser is to be fixed.</summary>")
    told = user("Summary:\n[summary] The parser is to be fixed.\nGo on.")
    assert session.ask([START[0], told], LS).drift is Drift.COMPACTION
    assert session.labels() == ["main", "summary", "main"]


def test_an_answer_that_the_summary_left_out_but_its_context_keeps_is_no_error():
    session = Session()
    first = session.ask(START, LS)
    history = [*START, echo(first), tool("a.py")]
    newest = session.ask(history, called("I read.", ("bash", '{"command": "cat a.py"}')))
    session.ask([*history, user("Sum up.")], SUMMARY)
    told = user(SUMMARY)
    session.ask([START[0], told, echo(newest), tool("the text")], "Done.")
    assert session.labels() == ["main", "main", "summary", "main"]
    session.check()


def test_a_compacted_context_that_is_written_anew_is_drift_and_no_second_compaction():
    session = Session()
    first = session.ask(START, LS)
    history = [*START, echo(first), tool("a.py"), user("Sum up.")]
    session.ask(history, SUMMARY)
    session.ask([system("You sum up."), *history[1:]], SUMMARY, tools=())
    fake = ChatMessage("assistant", "Got it!")
    after = session.ask([START[0], user(SUMMARY), fake], called("I read.", ("bash", "{}")))
    assert after.drift is Drift.COMPACTION
    merged = ChatMessage("assistant", "Got it!I read.", tool_calls=(use("bash", "{}"),))
    last = session.ask([START[0], user(f"By the way. {SUMMARY}"), merged, tool("the text")], "Done.")
    assert (last.drift, last.continues) == (Drift.HISTORY, after)
    assert session.labels()[3:] == ["main", "main"]
    session.check()


def test_a_closing_summary_that_quotes_the_conversation_is_no_compaction():
    session = Session()
    session.ask(START, "The test was fixed by changing one line.")
    quoted = user("Sum up: The test was fixed by changing one line.")
    session.ask([system("You sum up."), quoted], "All done.", tools=())
    assert session.labels() == ["main", "side"]
    assert not session.tree.drift


def test_a_commit_message_that_quotes_the_answer_is_no_compaction_where_nothing_has_tools():
    """Aider's, where it may commit: labelled otherwise the answer was a summary, and the message was learned."""
    session = Session()
    edit = "I change the parser.\nreturn a + b in place of return a - b"
    session.ask(START, edit, tools=())
    quoted = user(f"USER: Fix it.\nASSISTANT: {edit}\ndiff --git a/parser.py b/parser.py")
    session.ask([system("You write commit messages."), quoted], "Fix the parser", tools=())
    assert session.labels() == ["main", "side"]
    assert not session.tree.drift


def test_a_summary_is_known_where_nothing_has_tools():
    session = Session()
    first = session.ask(START, "I read the parser.", tools=())
    history = [*START, echo(first), user("Go on.")]
    session.ask([system("You sum up."), user("Sum up: Fix it.")], SUMMARY, tools=())
    assert session.ask([START[0], user(SUMMARY), *history[1:]], "Done.", tools=()).drift is Drift.COMPACTION
    assert session.labels() == ["main", "summary", "main"]


def test_a_fresh_context_that_is_asked_again_is_of_the_same_conversation():
    """Its first answer was empty. Nothing but what it goes on from says whose it is."""
    session = Session()
    first = session.ask(START[1:], LS)
    history = [user("Since then: Fix it."), echo(first), tool("a.py")]
    session.ask(history, "")
    again = session.ask(history, LS)
    session.ask([*history, echo(again), tool("b.py")], "Done.")
    assert session.labels() == ["main", "error", "main", "main"]
    assert session.tree.drift == {Drift.HISTORY: 1}


def test_an_answer_cut_short_is_closed_and_can_be_continued_without_a_word():
    session = Session()
    first = session.ask(START, "I was abou", finish="length")
    second = session.ask([*START, echo(first)], "t to say so.")
    assert second.parent is first
    whole = ChatMessage("assistant", "I was about to say so.")
    third = session.ask([*START, whole, user("Go on.")])
    assert third.parent is second
    session.check()


def test_observations_are_what_each_answer_led_to():
    session = Session()
    first = session.ask(START, LS)
    session.ask([*START, echo(first), tool("a.py"), user("and hurry")], "Done.")
    record = session.record()
    assert record.first_observation == "You are an agent.\n\nFix it."
    assert record.observations == ("a.py\n\nand hurry", "")
    assert record.actions[0] == 'I look.\nbash({ "command": "ls",  "n": 1 })'


def test_memory_holds_each_message_once():
    session = Session()
    history = list(START)
    for number in range(30):
        call = session.ask(history, f"answer {number}")
        history = [*history, echo(call), user(f"message {number}")]
    nodes, count = [*session.tree._roots.values()], 0
    while nodes:
        node = nodes.pop()
        nodes += node.children.values()
        count += 1
    assert count == 1 + 2 + 30 + 29
    assert sum(len(call.context_ids) for call in session.tree.calls) < 2000


def test_the_canonical_form_tells_apart_what_differs():
    assert canonical_json('{"b": 1, "a": [true, "1"]}') == canonical_json('{"a":[true,"1"],"b":1.0}')
    assert canonical_json('{"a": 1}') != canonical_json('{"a": "1"}')
    assert canonical_json("{" * 100_000) == "{" * 100_000
    assert digest(user("ab")) != digest(system("ab"))
    assert digest(tool("x"), 0) != digest(tool("x"), 1)
    two = ChatMessage("assistant", "", tool_calls=(use("a", '{"x":1}'), use("b", "{}")))
    assert digest(two) != digest(replace(two, tool_calls=two.tool_calls[::-1]))
