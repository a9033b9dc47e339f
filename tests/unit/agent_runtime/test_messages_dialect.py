"""What only Anthropic's messages have: blocks, claude-code's billing line and sub-agents, arguments that are objects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent_runtime.chat import (
    Asked,
    ChatMessage,
    ChatReply,
    ChatRequest,
    Refusal,
    RefusalKind,
    ToolUse,
    Usage,
)
from agent_runtime.dialects import COUNT_TOKENS, MESSAGES, of_path

USER = {"role": "user", "content": "go"}
BILLING = "x-anthropic-billing-header: cc_version=2.1.224.b44; cc_entrypoint=sdk-cli; cch=0;"


def parse(messages: list[Any], headers: dict[str, str] | None = None, **fields: Any) -> ChatRequest:
    body = {"model": "m", "max_tokens": 9, "messages": messages} | fields
    return MESSAGES.parse(json.dumps(body).encode(), headers or {})


def texts(*values: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": value, "cache_control": {"type": "ephemeral"}} for value in values]


@pytest.mark.parametrize(
    ("system", "told"),
    [
        ("You are.", "You are."),
        (texts("You are.", "So be."), "You are.\nSo be."),
        (texts(BILLING, "You are."), "You are."),
        (texts("You are.", BILLING), "You are."),
        (f"{BILLING}\nYou are.", "You are."),
        (
            texts("You are.", "no x-anthropic-billing-header: here"),
            "You are.\nno x-anthropic-billing-header: here",
        ),
    ],
)
def test_the_system_prompt_is_told_without_the_billing_line(system: Any, told: str) -> None:
    assert parse([USER], system=system).messages == (ChatMessage("system", told), ChatMessage("user", "go"))


@pytest.mark.parametrize("system", [None, "", [], texts(BILLING)])
def test_no_system_prompt_is_no_message(system: Any) -> None:
    assert parse([USER], system=system).messages == (ChatMessage("user", "go"),)


def test_two_conversations_differ_by_no_billing_line() -> None:
    one, two = (parse([USER], system=texts(BILLING.replace("b44", own), "You are.")) for own in ("a", "b"))
    assert one == two


def test_a_sub_agent_of_claude_says_so() -> None:
    marked = texts(f"{BILLING} cc_is_subagent=true;", "You are.")
    assert parse([USER], system=texts(BILLING)).asked is Asked.UNSAID
    assert parse([USER], system=marked).asked is Asked.SUB_AGENT
    assert (
        parse([USER], system=texts("cc_is_subagent=true")).asked is Asked.UNSAID
    )  # said to the model, not of the call
    named = parse([USER], {"x-claude-code-agent-id": "a1"}, system=marked)
    assert (named.asked, named.conversation) == (Asked.SUB_AGENT, "a1")


@pytest.mark.parametrize(
    ("content", "is_error", "told"),
    [
        ("ok", False, "ok"),
        (texts("a", "b"), None, "a\nb"),
        (None, None, ""),
        ([], None, ""),
        ("exit 1", True, "Error: exit 1"),
        ("<tool_use_error>no</tool_use_error>", True, "<tool_use_error>no</tool_use_error>"),
        ("Error: no", True, "Error: no"),
    ],
)
def test_a_result_is_text_or_blocks_and_may_be_an_error(
    content: Any, is_error: bool | None, told: str
) -> None:
    block = {"type": "tool_result", "tool_use_id": "c", "content": content, "is_error": is_error}
    assert parse([{"role": "user", "content": [block]}]).messages == (
        ChatMessage("tool", told, tool_call_id="c"),
    )


def test_results_and_text_keep_their_order() -> None:
    content = [
        {"type": "tool_result", "tool_use_id": "c1", "content": "one"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "two"},
        *texts("<system-reminder>", "go on"),
    ]
    assert parse([{"role": "user", "content": content}]).messages == (
        ChatMessage("tool", "one", tool_call_id="c1"),
        ChatMessage("tool", "two", tool_call_id="c2"),
        ChatMessage("user", "<system-reminder>\ngo on"),
    )


def test_an_image_in_a_result_is_refused_with_its_place() -> None:
    block = {
        "type": "tool_result",
        "tool_use_id": "c",
        "content": [*texts("see"), {"type": "image", "source": {}}],
    }
    with pytest.raises(Refusal, match=r"messages\[1\]\.content\[0\]\.content\[1\] is an image"):
        parse([USER, {"role": "user", "content": [block]}])


def test_a_document_is_refused() -> None:
    with pytest.raises(Refusal, match=r"messages\[0\]\.content\[0\] is a document"):
        parse([{"role": "user", "content": [{"type": "document", "source": {}}]}])


def test_blocks_of_an_answer_are_one_message() -> None:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "…"},
        {"type": "text", "text": "I look."},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": {"type": "error"}},
        {"type": "tool_use", "id": "c", "name": "shell", "input": {"b": 1, "a": 2}},
    ]
    (message,) = parse([{"role": "assistant", "content": content}]).messages
    assert message == ChatMessage("assistant", "I look.", "hm", (ToolUse("c", "shell", '{"b": 1, "a": 2}'),))


@pytest.mark.parametrize(
    "wrapped", [{"raw": '{"command": "ls'}, {"raw": '{"command": "ls', "len": 15}, '{"command": "ls']
)
def test_arguments_that_claude_could_not_read_are_what_was_sampled(wrapped: Any) -> None:
    block = {"type": "tool_use", "id": "c", "name": "shell", "input": {"__unparsedToolInput": wrapped}}
    (message,) = parse([{"role": "assistant", "content": [block]}]).messages
    assert message.tool_calls[0].arguments == '{"command": "ls'


def test_malformed_arguments_are_streamed_as_sampled_and_wrapped_else() -> None:
    reply = ChatReply(
        "r", "m", "", "tool_calls", Usage(1, 1), tool_calls=(ToolUse("c", "shell", '{"command": "ls'),)
    )
    whole = json.loads(MESSAGES.reply(reply, parse([USER])))
    assert whole["content"][0]["input"] == {"__unparsedToolInput": {"raw": '{"command": "ls'}}
    stream = b"".join(MESSAGES.stream(reply, parse([USER]))).decode()
    parts = [json.loads(line[6:]) for line in stream.split("\n") if line.startswith("data: ")]
    assert (
        "".join(part["delta"].get("partial_json", "") for part in parts if "delta" in part)
        == '{"command": "ls'
    )


def test_arguments_are_not_written_anew() -> None:
    sampled = '{"b":  1.0, "a": "\\u00e4"}'
    reply = ChatReply("r", "m", "", "tool_calls", Usage(1, 1), tool_calls=(ToolUse("c", "shell", sampled),))
    assert sampled.encode() in MESSAGES.reply(reply, parse([USER]))


@pytest.mark.parametrize("choice", ["auto", "none"])
def test_choices_of_tools(choice: str) -> None:
    assert parse([USER], tool_choice={"type": choice}).tool_choice == choice


@pytest.mark.parametrize(
    "choice", [{"type": "any", "disable_parallel_tool_use": True}, {"type": "tool", "name": "shell"}]
)
def test_a_call_that_cannot_be_forced_is_refused(choice: Any) -> None:
    with pytest.raises(Refusal, match="'tool_choice' is not supported"):
        parse([USER], tool_choice=choice)


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(Refusal, match="expected one of auto, none, any, tool"):
        parse([USER], tool_choice={"type": "maybe"})


def test_tools_that_the_provider_runs_are_not_shown() -> None:
    offered = [{"type": "web_search_20250305", "name": "web_search"}, {"name": "shell", "input_schema": {}}]
    assert [tool.name for tool in parse([USER], tools=offered).tools] == ["shell"]


def test_the_body_of_a_count_needs_no_bound() -> None:
    body = json.dumps({"model": "m", "messages": [USER]}).encode()
    assert of_path(COUNT_TOKENS) is MESSAGES
    assert MESSAGES.parse(body, {}).max_tokens is None
    assert json.loads(MESSAGES.count(7)) == {"input_tokens": 7}


def test_cached_tokens_are_not_among_the_inputs() -> None:
    reply = ChatReply("r", "m", "x", "stop", Usage(100, 5, 60))
    usage = json.loads(MESSAGES.reply(reply, parse([USER])))["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (40, 60)


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"limit": 100, "prompt": 150, "completion": 9, "got": 159}, "150 tokens > 100"),
        ({"limit": 100, "prompt": 98, "completion": 9, "got": 107}, "107 tokens > 100"),
        ({"limit": 100, "prompt": 98, "completion": 9}, "107 tokens > 100"),
        ({"limit": 100}, "101 tokens > 100"),
    ],
)
def test_a_full_context_names_more_tokens_than_there_may_be(details: dict[str, int], words: str) -> None:
    refusal = Refusal(RefusalKind.CONTEXT_OVERFLOW, "full", details=tuple(details.items()))
    error = json.loads(MESSAGES.refuse(refusal)[2])
    assert error["type"] == "error"
    assert error["error"]["message"] == f"prompt is too long: {words} maximum"
