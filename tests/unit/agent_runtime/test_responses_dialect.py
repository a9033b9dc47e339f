"""What only OpenAI's responses have: items, codex's kinds of tools and its turn metadata, nothing stored."""

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
from agent_runtime.dialects import RESPONSES

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: hunk+"}
TOOLS = [
    {
        "type": "function",
        "name": "shell",
        "description": "Run.",
        "parameters": {"type": "object"},
        "strict": False,
    },
    {"type": "custom", "name": "apply_patch", "description": "Edit.", "format": GRAMMAR},
    {"type": "local_shell"},
    {
        "type": "namespace",
        "name": "mcp__docs",
        "tools": [{"type": "function", "name": "find"}, {"type": "custom", "name": "note"}],
    },
    {"type": "web_search", "external_web_access": False},
    {"type": "image_generation"},
]


def parse(given: Any = "go", headers: dict[str, str] | None = None, **fields: Any) -> ChatRequest:
    body = {"model": "m", "store": False, "include": ["reasoning.encrypted_content"], "input": given} | fields
    return RESPONSES.parse(json.dumps(body).encode(), headers or {})


def called(*calls: ToolUse, **fields: Any) -> ChatReply:
    base: dict[str, Any] = {"finish": "tool_calls"}
    return ChatReply(id="r", model="m", text="", usage=Usage(1, 1), tool_calls=calls, **base | fields)


def output(reply: ChatReply) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(RESPONSES.reply(reply, parse(tools=TOOLS)))["output"]
    return items


def finished(reply: ChatReply) -> list[dict[str, Any]]:
    """Return the items of a stream as codex reads them: from `output_item.done` alone."""
    stream = b"".join(RESPONSES.stream(reply, parse(tools=TOOLS))).decode()
    data = [json.loads(line[6:]) for line in stream.split("\n") if line.startswith("data: ")]
    return [one["item"] for one in data if one["type"] == "response.output_item.done"]


def test_instructions_come_first() -> None:
    assert parse(instructions="Be.").messages == (ChatMessage("system", "Be."), ChatMessage("user", "go"))
    assert parse(instructions="").messages == (ChatMessage("user", "go"),)


def test_items_of_one_answer_are_one_message() -> None:
    items = [
        {"role": "developer", "content": [{"type": "input_text", "text": "rules"}]},
        {"type": "message", "role": "user", "content": "go"},
        {
            "type": "reasoning",
            "id": "r",
            "summary": [{"type": "summary_text", "text": "hm"}],
            "content": None,
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "web_search_call", "status": "completed", "action": {"type": "search"}},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"},
        {"type": "function_call", "name": "shell", "arguments": {"a": 1}, "call_id": "c2"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c3"},
    ]
    assert parse(items).messages == (
        ChatMessage("system", "rules"),
        ChatMessage("user", "go"),
        ChatMessage(
            "assistant", "I look.", "hm", (ToolUse("c1", "shell", "{}"), ToolUse("c2", "shell", '{"a":1}'))
        ),
        ChatMessage("tool", "one", tool_call_id="c1"),
        ChatMessage("tool", "two", tool_call_id="c2"),
        ChatMessage("assistant", "", "", (ToolUse("c3", "shell", "{}"),)),
    )


def test_reasoning_may_be_content() -> None:
    item = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    assert parse([item]).messages == (ChatMessage("assistant", "", "hm"),)


def test_tools_of_codex_are_shown_as_functions() -> None:
    tools = {tool.name: tool for tool in parse(tools=TOOLS).tools}
    assert list(tools) == ["shell", "apply_patch", "local_shell", "mcp__docs__find", "mcp__docs__note"]
    assert [tool.kind for tool in tools.values()] == [
        "function",
        "custom",
        "local_shell",
        "function",
        "custom",
    ]
    text = json.loads(tools["apply_patch"].parameters)["properties"]["input"]
    assert text["type"] == "string"
    assert "start: hunk+" in text["description"]


@pytest.mark.parametrize(
    ("use", "told"),
    [
        (
            ToolUse("c", "shell", '{"command": "ls'),
            {"type": "function_call", "name": "shell", "arguments": '{"command": "ls'},
        ),
        (
            ToolUse("c", "apply_patch", '{"input": "*** Begin\\n"}'),
            {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin\n"},
        ),
        (
            ToolUse("c", "apply_patch", "*** Begin"),
            {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin"},
        ),
        (
            ToolUse("c", "local_shell", '{"command": ["ls", "-l"], "timeout_ms": 5}'),
            {
                "type": "local_shell_call",
                "action": {"type": "exec", "env": {}, "command": ["ls", "-l"], "timeout_ms": 5},
            },
        ),
        (
            ToolUse("c", "local_shell", '{"command": "ls"}'),
            {"type": "function_call", "name": "local_shell", "arguments": '{"command": "ls"}'},
        ),
        (
            ToolUse("c", "mcp__docs__find", "{}"),
            {"type": "function_call", "namespace": "mcp__docs", "name": "find", "arguments": "{}"},
        ),
        (
            ToolUse("c", "mcp__docs__note", '{"input": "x"}'),
            {"type": "custom_tool_call", "namespace": "mcp__docs", "name": "note", "input": "x"},
        ),
        (ToolUse("c", "unknown", "{}"), {"type": "function_call", "name": "unknown", "arguments": "{}"}),
    ],
)
def test_a_call_is_told_in_the_form_of_its_tool(use: ToolUse, told: dict[str, Any]) -> None:
    (item,) = output(called(use))
    assert {name: item[name] for name in told} == told
    assert ("namespace" in item) == ("namespace" in told)
    assert item["call_id"] == "c"
    assert finished(called(use)) == [item]


@pytest.mark.parametrize(
    "use",
    [
        ToolUse("c", "apply_patch", '{"input":"*** Begin\\n"}'),
        ToolUse("c", "local_shell", '{"command":["ls"],"working_directory":"/x"}'),
        ToolUse("c", "mcp__docs__find", '{"q":"x"}'),
        ToolUse("c", "mcp__docs__note", '{"input":"x"}'),
    ],
)
def test_calls_of_all_forms_come_back_as_they_went(use: ToolUse) -> None:
    (item,) = output(called(use))
    if item["type"] == "local_shell_call":  # as codex writes it: all its fields
        item["action"] = {"timeout_ms": None, "user": None} | item["action"]
    kind = item["type"].replace("_call", "_call_output")
    answered = {"type": kind, "call_id": "c", "output": "ok"}
    echoed, result = parse([item, answered], tools=TOOLS).messages
    (call,) = echoed.tool_calls
    assert (call.id, call.name, json.loads(call.arguments)) == ("c", use.name, json.loads(use.arguments))
    assert result == ChatMessage("tool", "ok", tool_call_id="c")


def test_an_output_may_be_an_object() -> None:
    item = {
        "type": "function_call_output",
        "call_id": "c",
        "output": {"content": "no such file", "success": False},
    }
    assert parse([item]).messages[0].content == "no such file"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id .* nothing is stored"),
        ({"conversation": {"id": "conv_1"}}, "conversation .* nothing is stored"),
        ({"background": True}, "background .* nothing is stored"),
        ({"prompt": {"id": "p"}}, "prompt names a template"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, r"input\[0\] refers to an item"),
        (
            {"input": [{"type": "compaction", "encrypted_content": "x"}]},
            r"input\[0\] is a summary that only OpenAI",
        ),
        ({"input": [{"type": "function_call", "arguments": "{}"}]}, r"input\[0\].name is missing"),
    ],
)
def test_what_would_leave_a_hole_in_the_history_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Refusal, match=words):
        parse(**{"given": fields.pop("input", "go")} | fields)


IMAGE = {"type": "input_image", "image_url": "x"}


@pytest.mark.parametrize(
    ("kind", "output", "place"),
    [
        ("function_call_output", [IMAGE], r"output\[0\]"),
        ("function_call_output", IMAGE, "output"),
        (
            "custom_tool_call_output",
            {"content": [{"type": "input_text", "text": "a"}, IMAGE]},
            r"output\.content\[1\]",
        ),
        (
            "computer_call_output",
            {"type": "computer_screenshot", "image_url": "data:image/png;base64,x"},
            "output",
        ),
        ("computer_call_output", {"type": "input_image", "file_id": "f"}, "output"),
        ("computer_call_output", [{"type": "computer_screenshot", "image_url": "x"}], r"output\[0\]"),
    ],
)
def test_an_image_from_a_tool_is_refused_with_its_place(kind: str, output: Any, place: str) -> None:
    with pytest.raises(Refusal, match=rf"input\[0\]\.{place} is an image; the model has no vision"):
        parse([{"type": kind, "call_id": "c", "output": output}])


def turn(**fields: Any) -> dict[str, str]:
    return {"x-codex-turn-metadata": json.dumps({"session_id": "s", "thread_id": "t"} | fields)}


@pytest.mark.parametrize(
    ("headers", "asked", "conversation"),
    [
        ({}, Asked.UNSAID, ""),
        (turn(request_kind="turn"), Asked.UNSAID, ""),
        (turn(request_kind="compaction"), Asked.SUMMARY, ""),
        (turn(request_kind="turn", parent_thread_id="p"), Asked.SUB_AGENT, "t"),
        (turn(request_kind="compaction", parent_thread_id="p"), Asked.SUMMARY, "t"),
        ({"x-openai-subagent": "review"}, Asked.SUB_AGENT, "child of review"),
        ({"x-openai-subagent": "compact"}, Asked.SUMMARY, ""),
        ({"x-openai-subagent": "memory_consolidation", "thread-id": "m"}, Asked.SIDE, "m"),
        ({"x-codex-turn-metadata": "no json"}, Asked.UNSAID, ""),
        ({"x-codex-turn-metadata": "[1]"}, Asked.UNSAID, ""),
    ],
)
def test_codex_says_what_a_request_is_for(headers: dict[str, str], asked: Asked, conversation: str) -> None:
    found = parse(headers=headers)
    assert (found.asked, found.conversation) == (asked, conversation)
    inside = parse(client_metadata=headers)  # codex sends the same in the body
    assert inside.asked is asked


def test_a_cut_answer_marks_its_last_item() -> None:
    cut = called(ToolUse("c1", "shell", "{}"), ToolUse("c2", "shell", '{"c'), finish="length")
    assert [item["status"] for item in output(cut)] == ["completed", "incomplete"]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (RefusalKind.CONTEXT_OVERFLOW, "context_length_exceeded"),
        (RefusalKind.BUDGET, "insufficient_quota"),
        (RefusalKind.CLOSED, "insufficient_quota"),
        (RefusalKind.RATE_LIMIT, "rate_limit_exceeded"),
        (RefusalKind.UPSTREAM, "server_error"),
    ],
)
def test_codex_knows_from_the_code_whether_to_repeat(kind: RefusalKind, code: str) -> None:
    event = RESPONSES.refuse_mid_stream(Refusal(kind, "over", retry_after_s=1.5)).decode()
    failed = json.loads(event.split("data: ")[1])["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", code)
    assert ("Please try again in 1.500s." in failed["error"]["message"]) == (kind is RefusalKind.RATE_LIMIT)


def test_a_sign_of_life_is_an_event() -> None:
    """A comment would not reset codex's idle timer."""
    assert RESPONSES.keep_alive(parse(), "own").startswith(b"event: response.in_progress\ndata: ")
