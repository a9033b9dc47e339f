"""Every field of a request has the fate that docs/gateway-dialects.md names, and every field the providers know has one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dialect_wires import SHELL, WIRES, Wire

from agent_runtime.chat import ChatMessage, ChatRequest, Refusal, RefusalKind

PAGE = Path(__file__).parents[2] / "docs" / "gateway-dialects.md"
FATES = ("honoured", "overridden", "no effect", "refused")
NAMES = ("chat", "responses", "messages")
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}, "schema": {}}
VALUES: dict[str, list[Any]] = {
    "messages": [[{"role": "user", "content": "other"}]],
    "input": ["other"],
    "instructions": ["Be kind."],
    "system": ["Be kind."],
    "model": ["other"],
    "tools": [[]],
    "tool_choice": ["none"],
    "max_tokens": [7],
    "max_completion_tokens": [7],
    "max_output_tokens": [17],
    "stop": ["END", ["a", "b"]],
    "stop_sequences": [["END"]],
    "seed": [7],
    "stream": [True],
    "n": [2, 32],
    "best_of": [2],
    "logprobs": [True],
    "top_logprobs": [3],
    "response_format": [SCHEMA, {"type": "json_object"}, {"type": "poem"}],
    "text": [{"format": SCHEMA}],
    "output_format": [SCHEMA],
    "output_config": [{"effort": "low", "format": SCHEMA}],
    "functions": [[{"name": "f"}]],
    "function_call": [{"name": "f"}],
    "audio": [{"voice": "x"}],
    "modalities": [["text", "audio"]],
    "web_search_options": [{"search_context_size": "low"}],
    "previous_response_id": ["resp_1"],
    "conversation": ["conv_1"],
    "background": [True],
    "prompt": [{"id": "p"}],
    "include": [["message.output_text.logprobs"]],
    "mcp_servers": [[{"type": "url", "url": "https://example.org"}]],
    "container": ["c_1"],
    "parallel_tool_calls": [False, True],
    "store": [False, True],
    "truncation": ["auto", "disabled"],
}
"""Values that ask for more than the default; fields that are not here get `ODD`."""
ODD = ["x", 0.5, {"a": 1}]
SENT_BY_AGENTS: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {"stream_options": {"include_usage": True}, "store": False, "temperature": 0, "top_p": 0.95},
        {"response_format": {"type": "text"}, "n": 1, "stop": None, "logprobs": False, "top_logprobs": None},
        {"parallel_tool_calls": True, "metadata": {"sessionId": "s"}, "prompt_cache_key": "s", "stop": []},
    ],
    "responses": [
        {
            "store": False,
            "parallel_tool_calls": False,
            "reasoning": {"effort": "medium", "summary": "auto"},
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": "s",
            "text": {"verbosity": "low"},
            "tool_choice": "auto",
        },
        {"text": {"format": {"type": "text"}}, "top_logprobs": 0, "background": False},
    ],
    "messages": [
        {
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "metadata": {"user_id": "u"},
            "context_management": {"edits": []},
            "output_config": {"effort": "high"},
            "temperature": 1,
            "stop_sequences": [],
            "speed": "fast",
        }
    ],
}
"""By codex, pi, qwen-code, opencode, mini-swe-agent, aider and claude-code."""


def _table() -> dict[str, dict[str, str]]:
    """Return the fate of every field in every format, as the page has it."""
    section = PAGE.read_text(encoding="utf-8").partition("## Every field")[2].partition("\n## ")[0]
    found = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            field, *fates = [cell.strip() for cell in line.strip("|").split("|")]
            found[field.strip("`")] = dict(zip(NAMES, fates, strict=True))
    return found


TABLE = _table()
CASES = [
    (wire, field, fates[wire.dialect.name])
    for wire in WIRES
    for field, fates in TABLE.items()
    if fates[wire.dialect.name] != "–"
]


def parse(wire: Wire, **fields: Any) -> ChatRequest:
    body = json.loads(wire.body((ChatMessage("user", "go"),), (SHELL,)))
    return wire.dialect.parse(json.dumps(body | fields).encode(), {})


@pytest.mark.parametrize(
    ("wire", "field", "fate"), CASES, ids=lambda case: case if isinstance(case, str) else case.dialect.name
)
def test_a_field_has_the_fate_that_the_page_names(wire: Wire, field: str, fate: str) -> None:
    assert fate in FATES
    plain = parse(wire)
    for value in VALUES.get(field, ODD):
        if field == "tool_choice" and wire.dialect.name == "messages":
            value = {"type": value}
        if field == "stream_options":
            value = {"include_obfuscation": False}
        if fate == "refused":
            with pytest.raises(Refusal) as refused:
                parse(wire, **{field: value})
            assert refused.value.kind is RefusalKind.BAD_REQUEST
        elif fate == "honoured":
            assert parse(wire, **{field: value}) != plain
        else:
            assert parse(wire, **{field: value}) == plain


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.dialect.name)
def test_what_agents_really_send_is_read(wire: Wire) -> None:
    for fields in SENT_BY_AGENTS[wire.dialect.name]:
        assert parse(wire, **fields).messages == parse(wire).messages


def test_every_field_of_the_providers_clients_is_in_the_table() -> None:
    openai = pytest.importorskip(
        "openai", reason="the provider's client is not installed: pip install openai"
    )
    anthropic = pytest.importorskip(
        "anthropic", reason="the provider's client is not installed: pip install anthropic"
    )
    chat = openai.types.chat.completion_create_params.CompletionCreateParamsBase
    responses = openai.types.responses.response_create_params.ResponseCreateParamsBase
    messages = anthropic.types.message_create_params.MessageCreateParamsBase
    beta = anthropic.types.beta.message_create_params.MessageCreateParamsBase
    for name, known in (("chat", chat), ("responses", responses), ("messages", messages), ("messages", beta)):
        missing = [field for field in known.__annotations__ if TABLE.get(field, {}).get(name, "–") == "–"]
        assert not missing, f"{name}: say in {PAGE.name} what becomes of {missing}"


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_bound_below_one_is_refused_in_openais_words(field: str, value: int) -> None:
    with pytest.raises(Refusal, match=rf"Expected a value >= 1, but got {value} instead") as refused:
        parse(WIRES[0], **{field: value})
    assert (refused.value.param, refused.value.code) == (field, "integer_below_min_value")


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.dialect.name)
def test_a_bound_below_the_providers_least_is_refused(wire: Wire) -> None:
    field = "max_output_tokens" if wire.dialect.name == "responses" else "max_tokens"
    with pytest.raises(Refusal, match="integer below minimum value"):
        parse(wire, **{field: 0})


@pytest.mark.parametrize("stop", [["a", "b", "c", "d", "e"], [""], "", ["x" * 257]])
def test_stop_texts_have_bounds(stop: Any) -> None:
    with pytest.raises(Refusal) as refused:
        parse(WIRES[0], stop=stop)
    assert refused.value.param == "stop"


def test_a_blank_stop_is_openais_alone() -> None:
    assert parse(WIRES[0], stop="\n").stop == ("\n",)
    with pytest.raises(Refusal, match="must contain non-whitespace"):
        parse(WIRES[2], stop_sequences=["\n"])


def test_more_answers_than_one_request_has_are_had_by_requests_that_differ() -> None:
    with pytest.raises(Refusal, match=r"n is 33, expected 1 to 32.*another `seed`"):
        parse(WIRES[0], n=33)


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.dialect.name)
@pytest.mark.parametrize("depth", [101, 900])
def test_a_schema_that_is_nested_too_deeply_is_refused(wire: Wire, depth: int) -> None:
    schema = '{"a":' * depth + "{}" + "}" * depth
    body = wire.body((ChatMessage("user", "go"),), (SHELL,))
    deep = body.replace(json.dumps(json.loads(SHELL.parameters)).encode(), schema.encode())
    assert deep != body
    with pytest.raises(Refusal, match="nested deeper than 100 levels"):
        wire.dialect.parse(deep, {})


def test_brackets_in_a_text_of_a_schema_are_no_nesting() -> None:
    schema = json.dumps({"type": "object", "description": "[{" * 300})
    body = WIRES[0].body((ChatMessage("user", "go"),), (SHELL,))
    said = body.replace(json.dumps(json.loads(SHELL.parameters)).encode(), schema.encode())
    assert WIRES[0].dialect.parse(said, {}).tools[0].parameters == schema
