"""The calls of the memory: read as they are written, bounded, and told apart from actions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.agents.memory import BadCall, Delete, Memory, MemoryCall, Read, Write, parse_memory
from agent_runtime.types import TurnFault

names = st.from_regex(r"[A-Za-z0-9._-]{1,64}", fullmatch=True)
texts = st.text(min_size=1).map(str.strip).filter(bool)
calls = st.builds(Write, names, texts) | st.builds(Read, names | st.just("")) | st.builds(Delete, names)


def render_memory(call: MemoryCall) -> str:
    """Write a call as the message that `parse_memory` reads back as the same call."""
    match call:
        case Write(name, text):
            return f"memory write {name}\n{text}"
        case Read(name):
            return f"memory read {name}".rstrip()
        case Delete(name):
            return f"memory delete {name}"


@given(call=calls)
def test_a_call_is_read_as_it_was_written(call):
    assert parse_memory(render_memory(call)) == call
    assert parse_memory(f"\n  {render_memory(call)} \n") == call


@pytest.mark.parametrize(
    ("message", "meant"),
    [
        ("memory write plan first up, then left", Write("plan", "first up, then left")),
        ("memory write plan\nfirst\n\n```\nx\n```", Write("plan", "first\n\n```\nx\n```")),
        ("I note it.\n```\nmemory write plan\nfirst\n```\nNow on.", Write("plan", "first")),
        ("memory read", Read()),
        ("```\nmemory delete plan\n```", Delete("plan")),
    ],
)
def test_calls_may_be_written_in_several_ways(message, meant):
    assert parse_memory(message) == meant


@pytest.mark.parametrize(
    "message",
    [
        "",
        "up",
        "memory",
        "memory leak found",
        "Memory write plan x",
        "memorywrite plan x",
        "memory writes plan",
        "bash echo memory write plan x",
        "```\nmemory read a\n```\nor\n```\nmemory read b\n```",
        "```bash\nmemory read a\n```",
    ],
)
def test_other_messages_are_for_the_environment(message):
    assert parse_memory(message) is None
    assert Memory(100).handle(message) is None


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("memory write", "a note's name"),
        ("memory write a/b text", "'a/b'"),
        (f"memory write {'a' * 65} text", "1 to 64"),
        ("memory write plan", "needs text"),
        ("memory delete", "a note's name"),
        ("memory delete a b", "nothing after the name, got 'b'"),
        ("memory read a b", "nothing after the name, got 'b'"),
    ],
)
def test_a_malformed_call_says_what_was_expected(message, said):
    call = parse_memory(message)
    assert isinstance(call, BadCall)
    assert said in call.problem
    reply = Memory(100).handle(message)
    assert reply is not None
    assert reply.fault is TurnFault.ILLEGAL
    assert said in reply.text


def test_notes_are_kept_replaced_shown_and_forgotten():
    memory = Memory(100)
    assert memory.shown() == ""
    for message, said in [
        ("memory write a one", "kept a: 15 of 100"),
        ("memory write b two", "kept b: 31 of 100"),
        ("memory write a three", "kept a: 33 of 100"),
        ("memory read a", "a:\nthree"),
        ("memory read", "Notes: a, b"),
        ("memory delete b", "deleted b. Notes: a"),
    ]:
        reply = memory.handle(message)
        assert reply is not None
        assert said in reply.text
        assert reply.fault is TurnFault.NONE
    assert memory.shown() == "[memory] a:\nthree"


@pytest.mark.parametrize("message", ["memory read c", "memory delete c", "memory write a " + "x" * 99])
def test_what_cannot_be_done_is_refused_and_changes_nothing(message):
    memory = Memory(100)
    memory.handle("memory write a one")
    before = memory.shown()
    reply = memory.handle(message)
    assert reply is not None
    assert reply.fault is TurnFault.TOOL_FAILED
    assert "Notes: a" in reply.text
    assert memory.shown() == before


@given(st.lists(calls, max_size=30), st.integers(0, 200))
def test_the_notes_never_exceed_the_bound_and_follow_from_the_calls(made, max_chars):
    memory, again = Memory(max_chars), Memory(max_chars)
    for call in made:
        message = render_memory(call)
        reply = memory.handle(message)
        assert reply is not None
        assert len(memory.shown()) <= max_chars
        again.handle(message)
    assert again.shown() == memory.shown()
