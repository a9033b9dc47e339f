"""What an agent sends to `/v1/responses`: items of input and tools of several kinds, read into messages and tools.

Read by `responses` only. Items of one answer (reasoning, message, calls) become one message of the assistant again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from agent_runtime.chat import Asked, ChatMessage, ToolSpec, ToolUse
from agent_runtime.dialects.base import (
    MESSAGES_MOST,
    NOT_TEXT,
    PARTS_MOST,
    TOOLS_MOST,
    Content,
    Part,
    bad,
    encode,
    joined,
    not_text,
    schema_text,
    text_of,
)
from agent_runtime.dialects.fields import Format

__all__ = ["LOCAL_SHELL", "Body", "asked", "messages", "prefix", "tools"]

LOCAL_SHELL = "local_shell"
"""The name under which the model sees the tool of that type."""
_SHELL_PARAMETERS = encode(
    {
        "type": "object",
        "properties": {
            "command": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The program and its arguments.",
            },
            "working_directory": {"type": "string"},
            "timeout_ms": {"type": "integer"},
        },
        "required": ["command"],
    }
).decode()
_ROLES: dict[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_UNREADABLE = {
    "item_reference": "refers to an item of an earlier response, but none is stored",
    "compaction": "is a summary that only OpenAI can decrypt",
    "compaction_summary": "is a summary that only OpenAI can decrypt",
}
"""Items without which the history has a hole. Others of unknown types are passed over: no answer of ours contains them."""


class InputItem(msgspec.Struct, gc=False):
    """An item of the input."""

    type: str = "message"
    role: str | None = None
    content: Content = None
    summary: Annotated[list[Part], PARTS_MOST] | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | dict[str, Any] | None = None
    input: str | None = None
    action: Any = None
    output: str | Annotated[list[Part | str], PARTS_MOST] | dict[str, Any] | None = None


class Tool(msgspec.Struct):
    """A tool that the agent offers; those of unknown types are not shown to the model."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw()
    format: dict[str, Any] | None = None
    tools: Annotated[list[Tool], TOOLS_MOST] | None = None


class Text(msgspec.Struct):
    """How an answer is written."""

    format: Format | None = None


class Body(msgspec.Struct):
    """The fields of a request that are read."""

    input: str | Annotated[list[InputItem], MESSAGES_MOST]
    model: str | None = None
    instructions: str | Annotated[list[InputItem], MESSAGES_MOST] | None = None
    tools: Annotated[list[Tool], TOOLS_MOST] | None = None
    tool_choice: Any = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    stop: Any = None
    text: Text | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    client_metadata: dict[str, Any] | None = None


def messages(body: Body) -> tuple[ChatMessage, ...]:
    """Return a request's history. Raise `Refusal`."""
    found: list[ChatMessage] = []
    if isinstance(body.instructions, str):
        if body.instructions:
            found.append(ChatMessage("system", body.instructions))
    elif body.instructions:
        found += _history(body.instructions, "instructions")
    if isinstance(body.input, str):
        found.append(ChatMessage("user", body.input))
    else:
        found += _history(body.input, "input")
    if not found:
        raise bad("input is empty, expected text or at least one item.")
    return tuple(found)


class _Answer:
    """The items of one answer, until the next item that is the agent's."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.calls: list[ToolUse] = []
        self.begun = False

    def message(self) -> ChatMessage:
        return ChatMessage(
            "assistant", joined(self.texts or [""]), joined(self.thoughts or [""]), tuple(self.calls)
        )


def _history(items: Sequence[InputItem], field: str) -> Iterator[ChatMessage]:
    answer = _Answer()
    for at, item in enumerate(items):
        if _of_answer(item, answer, field, at):
            answer.begun = True
            continue
        message = _of_agent(item, field, at)
        if message is None:
            continue
        if answer.begun:
            yield answer.message()
            answer = _Answer()
        yield message
    if answer.begun:
        yield answer.message()


def _of_answer(item: InputItem, answer: _Answer, field: str, at: int) -> bool:
    """Add an item of the model's to its answer; return whether it was one."""
    if item.type == "message" and item.role == "assistant":
        answer.texts.append(text_of(item.content, field, at))
    elif item.type == "reasoning":
        text = text_of(item.content, field, at) if item.content else ""
        answer.thoughts.append(text or text_of([*(item.summary or ())], field, at, "summary"))
    elif item.type == "function_call":
        arguments = (
            item.arguments if isinstance(item.arguments, str) else encode(item.arguments or {}).decode()
        )
        answer.calls.append(_call(item, _full_name(item.namespace, _name(item, field, at)), arguments))
    elif item.type == "custom_tool_call":
        name = _full_name(item.namespace, _name(item, field, at))
        answer.calls.append(_call(item, name, encode({"input": item.input or ""}).decode()))
    elif item.type == "local_shell_call":
        action = item.action if isinstance(item.action, dict) else {}
        said = {name: value for name, value in action.items() if value not in (None, {}) and name != "type"}
        answer.calls.append(_call(item, LOCAL_SHELL, encode(said).decode()))
    else:
        return False
    return True


def _of_agent(item: InputItem, field: str, at: int) -> ChatMessage | None:
    """Return an item of the agent's as a message; None for one that says nothing to the model. Raise `Refusal`."""
    if item.type == "message":
        role = _ROLES.get(item.role or "")
        if role is None:
            raise bad(f"{field}[{at}].role is {item.role!r}, expected one of {', '.join(_ROLES)}.")
        return ChatMessage(role, text_of(item.content, field, at))
    if item.type.endswith("_call_output"):
        return ChatMessage("tool", _output(item, field, at), tool_call_id=item.call_id or item.id or "")
    if item.type in _UNREADABLE:
        raise bad(f"{field}[{at}] {_UNREADABLE[item.type]}. Send the whole history in `input`.")
    return None


def _output(item: InputItem, field: str, at: int) -> str:
    """Return what a tool answered; an object without a text `content` as JSON. Raise `Refusal` for what is no text."""
    if not isinstance(item.output, dict):
        return text_of(item.output, field, at, "output")
    if item.type == "computer_call_output":
        raise not_text("computer_screenshot", f"{field}[{at}].output")
    content = item.output.get("content")
    if isinstance(content, str):
        return content
    parts = {"output": item.output}
    parts |= {
        f"output.content[{n}]": part for n, part in enumerate(content if isinstance(content, list) else ())
    }
    for place, part in parts.items():
        kind = part.get("type") if isinstance(part, dict) else None
        if isinstance(kind, str) and kind in NOT_TEXT:
            raise not_text(kind, f"{field}[{at}].{place}")
    return encode(item.output).decode()


def _name(item: InputItem, field: str, at: int) -> str:
    if not item.name:
        raise bad(f"{field}[{at}].name is missing, expected the name of the tool that was called.")
    return item.name


def _call(item: InputItem, name: str, arguments: str) -> ToolUse:
    return ToolUse(item.call_id or item.id or "", name, arguments)


def _full_name(namespace: str | None, name: str) -> str:
    """Return the name by which the model knows a tool of a namespace."""
    return f"{prefix(namespace)}{name}" if namespace else name


def prefix(namespace: str) -> str:
    """Return what the names of a namespace's tools begin with, as the model sees them."""
    return namespace if namespace.endswith("_") else f"{namespace}__"


def tools(offered: Sequence[Tool] | None, namespace: str = "") -> Iterator[ToolSpec]:
    """Yield the tools that a model can be shown: functions, free-form ones and `local_shell`, also those of namespaces."""
    for tool in offered or ():
        name = _full_name(namespace, tool.name or "")
        said = tool.description or ""
        if tool.type == "function" and tool.name:
            yield ToolSpec(name, said, schema_text(tool.parameters), namespace=namespace)
        elif tool.type == "custom" and tool.name:
            yield ToolSpec(name, said, _free_form(tool.format), "custom", namespace)
        elif tool.type == "local_shell":
            yield ToolSpec(
                LOCAL_SHELL, said or "Run a command and return its output.", _SHELL_PARAMETERS, "local_shell"
            )
        elif tool.type == "namespace" and tool.name and not namespace:
            yield from tools(tool.tools, tool.name)


def _free_form(form: dict[str, Any] | None) -> str:
    """Return the schema by which a model calls a tool whose input is no JSON: one text, and its grammar in words."""
    text = {"type": "string"}
    if form and form.get("definition"):
        text["description"] = f"Text in this grammar ({form.get('syntax', 'lark')}):\n{form['definition']}"
    return encode({"type": "object", "properties": {"input": text}, "required": ["input"]}).decode()


def asked(headers: Mapping[str, str], said: Mapping[str, Any] | None) -> tuple[Asked, str]:
    """Return what codex says a request is for, and whose: in headers, or likewise in the body's `client_metadata`."""
    said = said or {}
    turn = _json(headers.get("x-codex-turn-metadata") or said.get("x-codex-turn-metadata"))
    agent = headers.get("x-openai-subagent") or said.get("x-openai-subagent") or ""
    parent = turn.get("parent_thread_id") or headers.get("x-codex-parent-thread-id")
    summary = turn.get("request_kind") == "compaction" or agent == "compact"
    child = bool(agent not in ("", "compact") or parent or turn.get("subagent_kind"))
    conversation = ""
    if child:
        own = turn.get("thread_id") or headers.get("thread-id") or said.get("thread_id")
        conversation = str(own or f"child of {parent or agent}")
    if summary:
        return Asked.SUMMARY, conversation
    if agent == "memory_consolidation":
        return Asked.SIDE, conversation
    return (Asked.SUB_AGENT if child else Asked.UNSAID), conversation


def _json(text: Any) -> dict[str, Any]:
    """Return a header's JSON object; an empty one for what is none."""
    if isinstance(text, dict):
        return text
    try:
        return _OBJECT.decode(text) if isinstance(text, str) else {}
    except (msgspec.DecodeError, RecursionError):
        return {}


_OBJECT = msgspec.json.Decoder(dict[str, Any])
