"""Tool calls as text: what models are told of tools, and how their answers are read. Pure, and without tokens.

The format (Hermes; Qwen, SmolLM and many others are trained on it) is one JSON object per call:

    <tool_call>
    {"name": "bash", "arguments": {"command": "ls"}}
    </tool_call>

and `<tool_response>…</tool_response>` in a user message for each result. `<think>…</think>` at the beginning is reasoning.
Llama writes the object bare, after `<|python_tag|>` or as the whole answer, with `parameters` for `arguments`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from agent_runtime.chat import ChatMessage, Parsed, ToolSpec, ToolUse

__all__ = [
    "PYTHON_TAG",
    "call_text",
    "describe_tools",
    "read_hermes",
    "read_llama",
    "response_text",
    "tool_json",
]

PYTHON_TAG = "<|python_tag|>"
_THINK, _THOUGHT = "<think>", "</think>"
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_NAME = re.compile(r'"name"\s*:\s*"([^"\\]+)"')
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*')
_TRIED = 8
"""Places that may be where a call's arguments begin; arguments may hold arguments, and each place is read to its end."""
_NO_OBJECT = "the arguments of a tool call are no JSON object"
_DECODER = json.JSONDecoder()

_INTRODUCTION = """\
You may call tools. They are described, as JSON, between <tools> and </tools>:
<tools>
{tools}
</tools>
To call one, write its name and arguments as a JSON object between <tool_call> and </tool_call>, once for each call:
<tool_call>
{{"name": <name>, "arguments": <arguments as a JSON object>}}
</tool_call>
Results come between <tool_response> and </tool_response>."""


def tool_json(tool: ToolSpec) -> dict[str, Any]:
    """Return a tool as chat templates expect it; parameters that are no JSON stand for none."""
    try:
        parameters = json.loads(tool.parameters or "{}")
    except (ValueError, RecursionError):
        parameters = {}
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """Return what a system message says of the tools."""
    return _INTRODUCTION.format(tools="\n".join(json.dumps(tool_json(tool)) for tool in tools))


def call_text(call: ToolUse) -> str:
    """Return a call of a history that is rendered afresh; arguments that are no JSON object stay as they are."""
    return f'{_OPEN}\n{{"name": {json.dumps(call.name)}, "arguments": {call.arguments.strip() or "{}"}}}\n{_CLOSE}'


def response_text(message: ChatMessage) -> str:
    """Return a tool's result as a user message tells it."""
    return f"<tool_response>\n{message.content}\n</tool_response>"


def read_hermes(text: str, tools: Sequence[ToolSpec], *, thinking: bool = False) -> Parsed:
    """Read an answer in the format above. `thinking`: the prompt has opened `<think>` already.

    Without tools on offer nothing is a call. A call that is cut off stays in the text; one whose JSON is broken but which
    has a name is a call with arguments as they were written. A call of a tool that is not on offer is malformed.
    """
    reasoning, text = _split_reasoning(text, thinking)
    if not tools or _OPEN not in text:
        return Parsed(text, reasoning)
    head, *bodies = text.split(_OPEN)
    said, calls, malformed = [head], list[ToolUse](), ""
    for body in bodies:
        inside, closed, after = body.partition(_CLOSE)
        # A model may end its answer instead of closing the last call: whole JSON is a call even so.
        found = _bodies(inside)
        if found is None:
            malformed = malformed or ("a tool call is no JSON" if closed else "a tool call is cut off")
            found = list(_broken(inside)) if closed else []
        if not found:
            said.append(_OPEN + body)
            continue
        if not all(_is_object(use.arguments) for use in found):
            malformed = malformed or _NO_OBJECT
        calls += found
        said.append(after)
    return Parsed("".join(said).strip(), reasoning, _numbered(calls), malformed or _not_offered(calls, tools))


def read_llama(text: str, tools: Sequence[ToolSpec], *, thinking: bool = False) -> Parsed:
    """Read an answer of Llama 3.x: objects with `name` and `parameters`, parted by `;` or white space."""
    reasoning, text = _split_reasoning(text, thinking)
    said, tagged, body = text.partition(PYTHON_TAG)
    if not tagged:
        said, body = "", text
    body = body.strip()
    if not tools or not (tagged or body.startswith("{")):
        return Parsed(text, reasoning)
    calls: list[ToolUse] = []
    at = 0
    while at < len(body):
        try:
            value, end = _DECODER.raw_decode(body, at)
        except (ValueError, RecursionError):
            break
        use = _use(value, body[at:end])
        if use is None:
            break
        calls.append(use)
        at = end
        while at < len(body) and body[at] in "; \n\t":
            at += 1
    if at == len(body) and calls:
        broken = any(not _is_object(use.arguments) for use in calls)
        malformed = _NO_OBJECT if broken else _not_offered(calls, tools)
        return Parsed(said.strip(), reasoning, _numbered(calls), malformed)
    if not tagged and not _NAME.search(body):
        return Parsed(text, reasoning)  # an answer that is JSON, not a call
    return Parsed(text, reasoning, malformed="a tool call is not readable as JSON")


def _split_reasoning(text: str, thinking: bool) -> tuple[str, str]:
    start = text.lstrip()
    if start.startswith(_THINK):
        start = start[len(_THINK) :]
    elif not thinking:
        return "", text
    reasoning, _, after = start.partition(_THOUGHT)
    return reasoning.strip(), after.strip()


def _bodies(inside: str) -> list[ToolUse] | None:
    """Return the calls between two tags, an object or a list of them; None for what is no call."""
    raw = inside.strip()
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    several = value if isinstance(value, list) else None
    uses = [_use(value, raw)] if several is None else [_use(each, json.dumps(each)) for each in several]
    found = [use for use in uses if use is not None]
    return found if found and len(found) == len(uses) else None


def _broken(inside: str) -> Iterator[ToolUse]:
    """Yield what can be known of a call that is no JSON: its name, and the arguments as they were written."""
    name, begin = _NAME.search(inside), _ARGUMENTS.search(inside)
    if name is not None:
        yield ToolUse("", name.group(1), inside[begin.end() :].strip() if begin else inside.strip())


def _use(value: Any, raw: str) -> ToolUse | None:
    """Return an object as a call whose arguments are the characters of `raw`; None if it has no name."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not value["name"]:
        return None
    name, arguments = _sendable(value["name"]), value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        return ToolUse("", name, _sendable(arguments))
    for begin in islice(_ARGUMENTS.finditer(raw), _TRIED):
        try:
            found, end = _DECODER.raw_decode(raw, begin.end())
        except ValueError:
            continue
        if found == arguments:
            return ToolUse("", name, raw[begin.end() : end])
    return ToolUse("", name, json.dumps(arguments))


def _sendable(text: str) -> str:
    """Return text out of JSON with a question mark for each half of a surrogate pair: UTF-8 has none."""
    return text.encode("utf-8", "replace").decode()


def _is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments or "{}"), dict)
    except (ValueError, RecursionError):
        return False


def _not_offered(calls: Sequence[ToolUse], tools: Sequence[ToolSpec]) -> str:
    """Return what is wrong with calls of tools that are not on offer; empty where all are."""
    offered = {tool.name for tool in tools}
    return (
        "" if all(call.name in offered for call in calls) else "a tool call names a tool that is not on offer"
    )


def _numbered(calls: Sequence[ToolUse]) -> tuple[ToolUse, ...]:
    """Name the calls by their place: whoever sends them out makes the names unique."""
    return tuple(ToolUse(f"call_{i}", call.name, call.arguments) for i, call in enumerate(calls))
