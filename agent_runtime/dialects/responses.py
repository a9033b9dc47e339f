"""OpenAI's responses, `/v1/responses`: codex, and OpenAI's own agents.

Nothing is stored, so every request brings its whole history (`store: false`, as codex asks).
Wire: https://platform.openai.com/docs/api-reference/responses and .../responses-streaming.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from agent_runtime.chat import ChatReply, ChatRequest, Refusal, RefusalKind, ToolSpec, Usage
from agent_runtime.dialects import openai_errors, responses_input
from agent_runtime.dialects.base import (
    RETRY_AFTER_S,
    Answer,
    arguments_of,
    bad,
    call_id,
    decode,
    encode,
    event,
    pieces,
)
from agent_runtime.dialects.fields import choice_of, format_of, none_of, tokens_of, unsupported

__all__ = ["RESPONSES"]

_DECODER = msgspec.json.Decoder(responses_input.Body)
_STORED = "nothing is stored here. Send the whole history in `input`, with store=false."
_OVERFLOW = "Your input exceeds the context window of this model. Please adjust your input and try again."
"""OpenAI's words; clients look for `exceeds the context window`."""
_FAILED = {
    RefusalKind.CONTEXT_OVERFLOW: "context_length_exceeded",
    RefusalKind.BUDGET: "insufficient_quota",
    RefusalKind.CLOSED: "insufficient_quota",
    RefusalKind.RATE_LIMIT: "rate_limit_exceeded",
    RefusalKind.BAD_REQUEST: "invalid_prompt",
}
"""Codes of a response that failed after it began; codex repeats those it does not know, and `rate_limit_exceeded`."""
_FUNCTION = ToolSpec("", "", "")
_LEAST_TOKENS = 16
"""OpenAI's least `max_output_tokens`."""


class _Responses:
    """See `Dialect`."""

    name = "responses"
    path = "/v1/responses"

    def parse(self, body: bytes, headers: Mapping[str, str]) -> ChatRequest:
        """Return what a request asks for. Raise `Refusal`."""
        fields = decode(body, _DECODER, self.name)
        if fields.previous_response_id or fields.conversation:
            what = "previous_response_id" if fields.previous_response_id else "conversation"
            raise bad(f"{what} names what was said before, but {_STORED}")
        if fields.background:
            raise bad(f"background is true, but {_STORED}")
        if fields.prompt:
            raise bad(
                "prompt names a template, expected the text itself. Send it in `instructions` and `input`."
            )
        if fields.stop is not None:
            raise unsupported(
                "stop", fields.stop, "This API has no stop texts; chat completions and messages do."
            )
        format_of("text.format", fields.text.format if fields.text else None)
        none_of(
            top_logprobs=fields.top_logprobs,
            include=[each for each in fields.include or () if each.endswith("logprobs")],
        )
        asked, conversation = responses_input.asked(headers, fields.client_metadata)
        return ChatRequest(
            messages=responses_input.messages(fields),
            tools=tuple(responses_input.tools(fields.tools)),
            model=fields.model or "",
            stream=bool(fields.stream),
            max_tokens=tokens_of("max_output_tokens", fields.max_output_tokens, _LEAST_TOKENS),
            tool_choice=choice_of(fields.tool_choice),
            asked=asked,
            conversation=conversation,
        )

    def reply(self, reply: ChatReply, request: ChatRequest) -> bytes:
        """Return a `response`."""
        return encode(_response(reply, reply.id, _output(reply, request)))

    def stream(self, reply: ChatReply, request: ChatRequest, opened: str = "") -> Iterator[bytes]:
        """Yield `response.created`, the events of each item, and `response.completed` or `response.incomplete`.

        A stream that was opened goes on with the id it was opened with: clients refuse a response whose id changes.
        """
        name = opened or reply.id
        number = 0
        if opened:
            number = _OPENING_EVENTS
        else:
            for kind in ("response.created", "response.in_progress"):
                yield _numbered(kind, number, {"response": _begun(name, reply.model, reply.created_s)})
                number += 1
        output = _output(reply, request)
        for index, item in enumerate(output):
            for kind, fields in _item_events(item, index):
                yield _numbered(kind, number, fields)
                number += 1
        last = "response.incomplete" if reply.finish == "length" else "response.completed"
        yield _numbered(last, number, {"response": _response(reply, name, output)})

    def opening(self, request: ChatRequest, opened: str) -> bytes:
        """Return `response.created` and `response.in_progress`."""
        begun = {"response": _begun(opened, request.model, 0)}
        return _numbered("response.created", 0, begun) + _numbered("response.in_progress", 1, begun)

    def keep_alive(self, request: ChatRequest, opened: str) -> bytes:
        """Return `response.in_progress` again: a comment would not reset codex's idle timer."""
        return _numbered("response.in_progress", 1, {"response": _begun(opened, request.model, 0)})

    def refuse(self, refusal: Refusal) -> Answer:
        """Return the error in OpenAI's form."""
        return openai_errors.refuse(refusal, _OVERFLOW, "input")

    def refuse_mid_stream(self, refusal: Refusal, opened: str = "") -> bytes:
        """Return `response.failed`, which codex reads; it passes over an event `error`."""
        code = _FAILED.get(refusal.kind, "server_error")
        message = _OVERFLOW if refusal.kind is RefusalKind.CONTEXT_OVERFLOW else refusal.message
        if refusal.kind is RefusalKind.RATE_LIMIT:  # codex reads the seconds out of the text
            message = f"{message} Please try again in {refusal.retry_after_s or RETRY_AFTER_S:.3f}s."
        failed = _begun(opened, "", 0) | {"status": "failed", "error": {"code": code, "message": message}}
        return _numbered("response.failed", _OPENING_EVENTS if opened else 0, {"response": failed})


RESPONSES = _Responses()

_OPENING_EVENTS = 2
"""How many events `opening` numbers."""


def _begun(name: str, model: str, created_s: int) -> dict[str, Any]:
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": created_s,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "truncation": "disabled",
        "usage": None,
    }


def _response(reply: ChatReply, name: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    cut = reply.finish == "length"
    return _begun(name, reply.model, reply.created_s) | {
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output,
        "usage": _usage(reply.usage),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _output(reply: ChatReply, request: ChatRequest) -> list[dict[str, Any]]:
    """Return an answer's items. Reasoning is told as a summary: that is what agents show and send back."""
    items: list[dict[str, Any]] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append(
            {"id": f"rs_{reply.id}", "type": "reasoning", "summary": summary, "encrypted_content": None}
        )
    if reply.text or not reply.tool_calls:
        text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        items.append(
            {
                "id": f"msg_{reply.id}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [text],
            }
        )
    offered = {tool.name: tool for tool in request.tools if tool.kind != "function" or tool.namespace}
    items += [_call(reply, number, offered) for number in range(len(reply.tool_calls))]
    if reply.finish == "length" and items[-1]["type"] != "reasoning":
        items[-1]["status"] = "incomplete"
    return items


def _call(reply: ChatReply, number: int, offered: Mapping[str, ToolSpec]) -> dict[str, Any]:
    """Return a call in the form of its tool. What does not fit `local_shell` stays a function call, which codex refuses."""
    call = reply.tool_calls[number]
    tool = offered.get(call.name, _FUNCTION)
    name = call.name.removeprefix(responses_input.prefix(tool.namespace)) if tool.namespace else call.name
    item: dict[str, Any] = {
        "id": f"fc_{reply.id}_{number}",
        "type": "function_call",
        "call_id": call_id(reply, number),
        "status": "completed",
    }
    if tool.namespace:
        item["namespace"] = tool.namespace
    if tool.kind == "custom":
        arguments = arguments_of(call)
        free = arguments.get("input") if arguments is not None else None
        return item | {
            "type": "custom_tool_call",
            "name": name,
            "input": free if isinstance(free, str) else call.arguments,
        }
    if tool.kind == "local_shell":
        action = arguments_of(call)
        command = action.get("command") if action is not None else None
        if (
            action is not None
            and isinstance(command, list)
            and all(isinstance(word, str) for word in command)
        ):
            return item | {"type": "local_shell_call", "action": {"env": {}, **action, "type": "exec"}}
    return item | {"name": name, "arguments": call.arguments}


def _item_events(item: dict[str, Any], index: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events that build one item."""
    place = {"item_id": item["id"], "output_index": index}
    if item["type"] == "message":
        text = item["content"][0]
        yield _added(index, item | {"status": "in_progress", "content": []})
        part = {**place, "content_index": 0}
        yield "response.content_part.added", {**part, "part": {**text, "text": ""}}
        for piece in pieces(text["text"]):
            yield "response.output_text.delta", {**part, "delta": piece, "logprobs": []}
        yield "response.output_text.done", {**part, "text": text["text"], "logprobs": []}
        yield "response.content_part.done", {**part, "part": text}
    elif item["type"] == "reasoning":
        yield _added(index, item | {"summary": []})
        whole = item["summary"][0]
        part = {**place, "summary_index": 0}
        yield "response.reasoning_summary_part.added", {**part, "part": {**whole, "text": ""}}
        for piece in pieces(whole["text"]):
            yield "response.reasoning_summary_text.delta", {**part, "delta": piece}
        yield "response.reasoning_summary_text.done", {**part, "text": whole["text"]}
        yield "response.reasoning_summary_part.done", {**part, "part": whole}
    elif item["type"] == "local_shell_call":
        yield _added(index, item | {"status": "in_progress"})
    else:
        field, kind = "arguments", "response.function_call_arguments"
        if item["type"] == "custom_tool_call":
            field, kind = "input", "response.custom_tool_call_input"
        yield _added(index, item | {"status": "in_progress", field: ""})
        for piece in pieces(item[field]):
            yield f"{kind}.delta", {**place, "delta": piece}
        yield f"{kind}.done", {**place, field: item[field], "name": item["name"]}
    yield "response.output_item.done", {"output_index": index, "item": item}


def _added(index: int, item: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "response.output_item.added", {"output_index": index, "item": item}


def _numbered(kind: str, number: int, fields: dict[str, Any]) -> bytes:
    return event(kind, {"type": kind, "sequence_number": number, **fields})
