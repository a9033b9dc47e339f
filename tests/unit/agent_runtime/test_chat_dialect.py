"""What only chat completions have: reasoning under several names, choices of tools, usage on request, opencode's headers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_runtime.chat import Asked, ChatReply, ChatRequest, Refusal, ToolUse, Usage
from agent_runtime.dialects import CHAT

USER = {"role": "user", "content": "go"}


def parse(messages: list[Any], headers: dict[str, str] | None = None, **fields: Any) -> ChatRequest:
    return CHAT.parse(json.dumps({"model": "m", "messages": messages} | fields).encode(), headers or {})


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"reasoning_content": "hm"}, "hm"),
        ({"reasoning": "hm"}, "hm"),
        ({"reasoning_content": "hm", "reasoning": "other"}, "hm"),
        ({"reasoning_content": None, "reasoning": None}, ""),
        ({"reasoning": {"effort": "high"}}, ""),
        ({}, ""),
    ],
)
def test_reasoning_has_two_names(fields: dict[str, Any], reasoning: str) -> None:
    assert parse([{"role": "assistant", "content": "x"} | fields]).messages[0].reasoning == reasoning


@pytest.mark.parametrize(("choice", "meaning"), [(None, "auto"), ("auto", "auto"), ("none", "none")])
def test_a_choice_of_tools_is_the_models_or_none(choice: Any, meaning: str) -> None:
    assert parse([USER], tool_choice=choice).tool_choice == meaning


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        {"type": "function", "function": {"name": "shell"}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
    ],
)
def test_a_call_that_cannot_be_forced_is_refused(choice: Any) -> None:
    with pytest.raises(Refusal, match="'tool_choice' is not supported") as refused:
        parse([USER], tool_choice=choice)
    assert (refused.value.param, refused.value.code) == ("tool_choice", "unsupported_parameter")


def test_a_choice_that_is_none_is_refused() -> None:
    with pytest.raises(Refusal, match="tool_choice is 'sometimes', expected 'auto'"):
        parse([USER], tool_choice="sometimes")


@pytest.mark.parametrize(
    ("fields", "included"),
    [
        ({}, True),
        ({"stream": True}, False),
        ({"stream": True, "stream_options": None}, False),
        ({"stream": True, "stream_options": {"include_usage": False}}, False),
        ({"stream": True, "stream_options": {"include_usage": True}}, True),
    ],
)
def test_a_stream_tells_usage_where_it_is_asked_for(fields: dict[str, Any], included: bool) -> None:
    request = parse([USER], **fields)
    assert request.include_usage is included
    reply = ChatReply("r", "m", "x", "stop", Usage(1, 1))
    assert (b'"usage"' in b"".join(CHAT.stream(reply, request))) is included


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({}, None),
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 7}, 7),
        ({"max_tokens": 5, "max_completion_tokens": 7}, 7),
    ],
)
def test_the_newer_bound_on_tokens_wins(fields: dict[str, Any], most: int | None) -> None:
    assert parse([USER], **fields).max_tokens == most


@pytest.mark.parametrize("n", [-1, 0, 33])
def test_none_and_too_many_answers_are_refused(n: int) -> None:
    with pytest.raises(Refusal, match=f"n is {n}, expected 1 to 32") as refused:
        parse([USER], n=n)
    assert refused.value.param == "n"


@pytest.mark.parametrize(("n", "asked"), [(None, 1), (1, 1), (4, 4), (32, 32)])
def test_several_answers_may_be_asked_for(n: int | None, asked: int) -> None:
    assert parse([USER], n=n).n == asked


def test_several_answers_are_choices_that_pay_for_one_prompt() -> None:
    call = ToolUse("call_1", "bash", "{}")
    second = ChatReply("s", "m", "", "tool_calls", Usage(7, 3), tool_calls=(call,))
    reply = ChatReply("r", "m", "one", "stop", Usage(7, 2, cached_tokens=4), others=(second,))
    request = parse([USER], n=2, stream=True, stream_options={"include_usage": True})
    whole = json.loads(CHAT.reply(reply, request))
    assert [choice["index"] for choice in whole["choices"]] == [0, 1]
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["stop", "tool_calls"]
    assert whole["choices"][0]["message"]["content"] == "one"
    assert whole["choices"][1]["message"]["tool_calls"][0]["id"] == "call_1"
    assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (7, 5)
    events = [json.loads(event[6:]) for event in CHAT.stream(reply, request) if b"[DONE]" not in event]
    said = [choice for event in events for choice in event["choices"]]
    assert [c["index"] for c in said if c["finish_reason"]] == [0, 1]
    assert "".join(c["delta"].get("content") or "" for c in said if c["index"] == 0) == "one"
    names = [c["delta"]["tool_calls"][0]["function"].get("name") for c in said if "tool_calls" in c["delta"]]
    assert names[0] == "bash"
    assert all(c["index"] == 1 for c in said if "tool_calls" in c["delta"])
    assert events[-1]["usage"]["completion_tokens"] == 5


def test_retired_functions_are_refused_and_not_forgotten() -> None:
    with pytest.raises(Refusal, match="retired form of tools"):
        parse([USER], functions=[{"name": "shell"}])


def test_arguments_may_be_an_object() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "shell", "arguments": {"command": "ls"}}}
    (message,) = parse([{"role": "assistant", "content": None, "tool_calls": [call]}]).messages
    assert message.tool_calls == (ToolUse("c", "shell", '{"command":"ls"}'),)


def test_malformed_arguments_stay_as_they_were() -> None:
    call = {"id": "c", "function": {"name": "shell", "arguments": '{"command": "ls'}}
    (message,) = parse([{"role": "assistant", "tool_calls": [call]}]).messages
    assert message.tool_calls[0].arguments == '{"command": "ls'


def test_tools_of_unknown_types_are_not_shown() -> None:
    known = {"type": "function", "function": {"name": "shell"}}
    odd = [{"type": "web_search"}, {"type": "custom", "custom": {"name": "patch"}}]
    (tool,) = parse([USER], tools=[*odd, known]).tools
    assert (tool.name, tool.description, json.loads(tool.parameters)["type"]) == ("shell", "", "object")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("image_url", "an image; the model has no vision"),
        ("input_audio", "audio; the model has no hearing"),
        ("file", "a file; the model has no access to files"),
        ("video_url", "a video; the model has no vision"),
        ("hologram", "of type 'hologram' and has no text"),
    ],
)
def test_what_is_no_text_is_refused_by_name(kind: str, words: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse([USER, {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": kind}]}])
    assert f"messages[1].content[1] is {words}" in str(refused.value)


def test_several_parts_are_lines() -> None:
    parts = [
        {"type": "text", "text": "a"},
        "b",
        {"type": "text", "text": ""},
        {"type": "refusal", "refusal": "no"},
    ]
    assert parse([{"role": "assistant", "content": parts}]).messages[0].content == "a\nb\nno"


def test_a_sub_agent_of_opencode_says_so() -> None:
    own = {"x-session-id": "ses_b", "x-session-affinity": "ses_b"}
    assert parse([USER], own).asked is Asked.UNSAID
    assert parse([USER], own).conversation == ""
    child = parse([USER], own | {"x-parent-session-id": "ses_a"})
    assert (child.asked, child.conversation) == (Asked.SUB_AGENT, "ses_b")
    assert parse([USER], {"x-parent-session-id": "ses_a"}).conversation == "child of ses_a"


def test_a_call_without_text_has_null_content() -> None:
    reply = ChatReply("r", "m", "", "tool_calls", Usage(1, 1), tool_calls=(ToolUse("c", "shell", "{}"),))
    message = json.loads(CHAT.reply(reply, parse([USER])))["choices"][0]["message"]
    assert message["content"] is None
    assert "reasoning_content" not in message
    empty = ChatReply("r", "m", "", "stop", Usage(1, 1))
    assert json.loads(CHAT.reply(empty, parse([USER])))["choices"][0]["message"]["content"] == ""
