"""What an agent says of its own requests, in the headers that every wire format has."""

from __future__ import annotations

import pytest
from agents_at_gateway import chat
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.chat import Asked, Refusal, RefusalKind
from agent_runtime.gateway.label_headers import CONVERSATION_HEADER, LABEL_HEADER, labelled


@pytest.mark.parametrize("label", ["main", "sub_agent", "summary", "side"])
def test_a_request_is_for_what_its_header_says(label):
    told = labelled(chat("a", asked=Asked.SIDE), {LABEL_HEADER: label})
    assert told.asked == label


def test_a_conversation_is_named_for_a_sub_agent_and_main_has_none():
    codex = chat("a", asked=Asked.SUB_AGENT, conversation="thread 7")
    assert labelled(codex, {}) is codex
    assert labelled(codex, {CONVERSATION_HEADER: "helper-1"}).conversation == "helper-1"
    assert labelled(codex, {LABEL_HEADER: "summary"}).conversation == "thread 7"
    assert labelled(codex, {LABEL_HEADER: "main"}).conversation == ""
    with pytest.raises(Refusal, match="none beside x-ale-label: main"):
        labelled(codex, {LABEL_HEADER: "main", CONVERSATION_HEADER: "helper-1"})


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (LABEL_HEADER, ""),
        (LABEL_HEADER, "error"),
        (LABEL_HEADER, "superseded"),
        (LABEL_HEADER, "Main"),
        (LABEL_HEADER, "main, side"),
        (LABEL_HEADER, "x" * 60_000),
        (CONVERSATION_HEADER, ""),
        (CONVERSATION_HEADER, "two words"),
        (CONVERSATION_HEADER, "x" * 129),
        (CONVERSATION_HEADER, "caf\xe9"),
        (CONVERSATION_HEADER, "a\n"),
    ],
)
def test_any_other_value_is_refused_in_one_short_line(header, value):
    with pytest.raises(Refusal) as refused:
        labelled(chat("a"), {header: value})
    assert refused.value.kind is RefusalKind.BAD_REQUEST
    assert header in refused.value.message
    assert len(refused.value.message) < 250
    assert "\n" not in refused.value.message


@given(st.text(max_size=200), st.text(max_size=200))
def test_whatever_they_say_a_label_is_of_the_set_and_a_name_is_bounded(label, conversation):
    try:
        told = labelled(chat("a"), {LABEL_HEADER: label, CONVERSATION_HEADER: conversation})
    except Refusal:
        return
    assert told.asked in (Asked.SUB_AGENT, Asked.SUMMARY, Asked.SIDE)
    assert 0 < len(told.conversation) <= 128
