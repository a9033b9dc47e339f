"""Anthropic's messages, `/v1/messages` and `/v1/messages/count_tokens`: claude-code.

Wire: https://docs.anthropic.com/en/api/messages and .../messages-streaming; errors: .../errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec

from agent_runtime.chat import (
    Asked,
    ChatMessage,
    ChatReply,
    ChatRequest,
    Refusal,
    RefusalKind,
    ToolSpec,
    ToolUse,
)
from agent_runtime.dialects.base import (
    MESSAGES_MOST,
    PARTS_MOST,
    TOOLS_MOST,
    Answer,
    arguments_of,
    bad,
    call_id,
    decode,
    encode,
    event,
    joined,
    not_text,
    pieces,
    raw_text,
    retry_headers,
    schema_text,
)
from agent_runtime.dialects.fields import Format, format_of, none_of, stop_of, tokens_of, unsupported

__all__ = ["MESSAGES"]

_API = "messages"
BILLING = "x-anthropic-billing-header:"
"""claude-code's first system block; it changes with every conversation and says nothing to a model."""
UNPARSED = "__unparsedToolInput"
"""How claude-code gives back arguments that were no JSON: `{UNPARSED: {"raw": text}}`."""

_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_CHOICES: dict[str, Literal["auto", "none"]] = {"auto": "auto", "none": "none"}
_FORCED = ("any", "tool")
_MOST_STOPS = 64
_ERRORS: dict[RefusalKind, tuple[int, str]] = {
    RefusalKind.BAD_REQUEST: (400, "invalid_request_error"),
    RefusalKind.UNAUTHORIZED: (401, "authentication_error"),
    RefusalKind.NOT_FOUND: (404, "not_found_error"),
    RefusalKind.TOO_LARGE: (413, "request_too_large"),
    RefusalKind.CONTEXT_OVERFLOW: (400, "invalid_request_error"),
    RefusalKind.BUDGET: (402, "billing_error"),
    RefusalKind.RATE_LIMIT: (429, "rate_limit_error"),
    RefusalKind.UPSTREAM: (500, "api_error"),
    RefusalKind.CLOSED: (403, "permission_error"),
}


class _Block(msgspec.Struct, gc=False):
    type: str = "text"
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    tool_use_id: str | None = None
    content: str | Annotated[list[_Block | str], PARTS_MOST] | dict[str, Any] | None = None
    is_error: bool | None = None


_Content = str | Annotated[list[_Block | str], PARTS_MOST] | None


class _Message(msgspec.Struct, gc=False):
    role: str
    content: _Content = None


class _Tool(msgspec.Struct):
    name: str = ""
    description: str | None = None
    input_schema: msgspec.Raw = msgspec.Raw()


class _Choice(msgspec.Struct):
    type: str = "auto"


class _Config(msgspec.Struct):
    format: Format | None = None


class _Body(msgspec.Struct):
    messages: Annotated[list[_Message], MESSAGES_MOST]
    model: str | None = None
    system: _Content = None
    tools: Annotated[list[_Tool], TOOLS_MOST] | None = None
    tool_choice: _Choice | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    stop_sequences: list[str] | None = None
    output_format: Format | None = None
    output_config: _Config | None = None
    mcp_servers: list[Any] | None = None
    container: Any = None


_DECODER = msgspec.json.Decoder(_Body)


class _Messages:
    """See `Dialect`."""

    name = "messages"
    path = "/v1/messages"

    def parse(self, body: bytes, headers: Mapping[str, str]) -> ChatRequest:
        """Return what a request asks for, or whose tokens it wants counted. Raise `Refusal`."""
        fields = decode(body, _DECODER, _API)
        if not fields.messages:
            raise bad("messages is empty, expected at least one message.")
        format_of("output_format", fields.output_format)
        format_of("output_config.format", fields.output_config.format if fields.output_config else None)
        none_of(mcp_servers=fields.mcp_servers, container=fields.container)
        system, billing = _system(fields.system)
        agent = headers.get("x-claude-code-agent-id", "")
        messages = [ChatMessage("system", system)] if system else []
        for at, message in enumerate(fields.messages):
            _add(messages, message, at)
        return ChatRequest(
            messages=tuple(messages),
            tools=tuple([_tool(tool) for tool in fields.tools or () if bytes(tool.input_schema)]),
            model=fields.model or "",
            stream=bool(fields.stream),
            max_tokens=tokens_of("max_tokens", fields.max_tokens),
            tool_choice=_choice(fields.tool_choice),
            stop=stop_of("stop_sequences", fields.stop_sequences, _MOST_STOPS),
            asked=Asked.SUB_AGENT if agent or "cc_is_subagent=true" in billing else Asked.UNSAID,
            conversation=agent,
        )

    def count(self, tokens: int) -> bytes:
        """Return the answer to `count_tokens`."""
        return encode({"input_tokens": tokens})

    def reply(self, reply: ChatReply, request: ChatRequest) -> bytes:
        """Return a `message`."""
        content: list[dict[str, Any]] = []
        if reply.reasoning:
            content.append({"type": "thinking", "thinking": reply.reasoning, "signature": _signature(reply)})
        if reply.text:
            content.append({"type": "text", "text": reply.text})
        content += [
            {"type": "tool_use", "id": call_id(reply, number), "name": call.name, "input": _input(call)}
            for number, call in enumerate(reply.tool_calls)
        ]
        return encode(_head(reply) | {"content": content, **_stop(reply), "usage": _usage(reply, ended=True)})

    def stream(self, reply: ChatReply, request: ChatRequest, opened: str = "") -> Iterator[bytes]:
        """Yield the events `message_start`, those of each block, `message_delta`, `message_stop`."""
        yield event("message_start", {"type": "message_start", "message": _head(reply)})
        index = 0
        if reply.reasoning:
            begun = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": text} for text in pieces(reply.reasoning)]
            yield from _block(
                index, begun, [*deltas, {"type": "signature_delta", "signature": _signature(reply)}]
            )
            index += 1
        if reply.text:
            deltas = [{"type": "text_delta", "text": text} for text in pieces(reply.text)]
            yield from _block(index, {"type": "text", "text": ""}, deltas)
            index += 1
        for number, call in enumerate(reply.tool_calls):
            begun_call = {"type": "tool_use", "id": call_id(reply, number), "name": call.name, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": text} for text in pieces(call.arguments)]
            yield from _block(index + number, begun_call, deltas)
        yield event(
            "message_delta",
            {"type": "message_delta", "delta": _stop(reply), "usage": _usage(reply, ended=True)},
        )
        yield event("message_stop", {"type": "message_stop"})

    def opening(self, request: ChatRequest, opened: str) -> bytes:
        """Return a `ping`: `message_start` would have to name the prompt's tokens."""
        return event("ping", {"type": "ping"})

    def keep_alive(self, request: ChatRequest, opened: str) -> bytes:
        """Return a `ping`."""
        return event("ping", {"type": "ping"})

    def refuse(self, refusal: Refusal) -> Answer:
        """Return the error in Anthropic's form. An engine that says when to come back is overloaded (529)."""
        status = _ERRORS[refusal.kind][0]
        if refusal.kind is RefusalKind.UPSTREAM and refusal.retry_after_s is not None:
            status = 529
        return status, retry_headers(refusal, status), encode(_error(refusal))

    def refuse_mid_stream(self, refusal: Refusal, opened: str = "") -> bytes:
        """Return the event `error`."""
        return event("error", _error(refusal))


MESSAGES = _Messages()


def _choice(wished: _Choice | None) -> Literal["auto", "none"]:
    kind = wished.type if wished is not None else "auto"
    if kind in _FORCED:
        raise unsupported("tool_choice", kind, "No call can be forced here: send auto or none.")
    choice = _CHOICES.get(kind)
    if choice is None:
        raise bad(f"tool_choice.type is {kind!r}, expected one of {', '.join((*_CHOICES, *_FORCED))}.")
    return choice


def _stop(reply: ChatReply) -> dict[str, str | None]:
    """Return why an answer ended; a tool's call is told before a stop sequence, as Anthropic does."""
    if reply.stop and reply.finish == "stop":
        return {"stop_reason": "stop_sequence", "stop_sequence": reply.stop}
    return {"stop_reason": _STOPS[reply.finish], "stop_sequence": None}


def _system(content: _Content) -> tuple[str, str]:
    """Return the system prompt, and the billing line of claude-code that was taken out of it."""
    texts, billing = [], ""
    for text in _texts(content, "system"):
        if text.startswith(BILLING):
            billing, _, text = text.partition("\n")
        texts.append(text)
    return joined(texts) if texts else "", billing


def _texts(content: _Content | dict[str, Any], at: str) -> list[str]:
    """Return the texts of a content that may hold nothing else. Raise `Refusal`."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if isinstance(content, dict):
        raise bad(f"{at} does not fit: expected str or array, got object. Send it as the {_API} API has it.")
    texts = []
    for number, block in enumerate(content):
        if isinstance(block, str):
            texts.append(block)
        elif block.text is not None:
            texts.append(block.text)
        elif block.type != "tool_reference":
            raise not_text(block.type, f"{at}[{number}]")
    return texts


def _add(messages: list[ChatMessage], message: _Message, at: int) -> None:
    """Append what one message of the wire is: results of tools are messages of their own."""
    content = message.content
    if message.role == "assistant":
        messages.append(_assistant(content, at))
    elif message.role == "system":
        messages.append(ChatMessage("system", joined(_texts(content, f"messages[{at}].content") or [""])))
    elif message.role != "user":
        raise bad(f"messages[{at}].role is {message.role!r}, expected user, assistant or system.")
    elif content is None or isinstance(content, str):
        messages.append(ChatMessage("user", content or ""))
    else:
        texts: list[str] = []
        for number, block in enumerate(content):
            if isinstance(block, str):
                texts.append(block)
            elif block.type == "tool_result":
                _flush(messages, texts)
                messages.append(_result(block, at, number))
            elif block.text is not None:
                texts.append(block.text)
            else:
                raise not_text(block.type, f"messages[{at}].content[{number}]")
        if texts or not content:
            _flush(messages, texts or [""])


def _flush(messages: list[ChatMessage], texts: list[str]) -> None:
    if texts:
        messages.append(ChatMessage("user", joined(texts)))
        texts.clear()


def _result(block: _Block, at: int, number: int) -> ChatMessage:
    text = joined(_texts(block.content, f"messages[{at}].content[{number}].content") or [""])
    if block.is_error and not text.lower().startswith(("error", "<tool_use_error>")):
        text = f"Error: {text}"
    return ChatMessage("tool", text, tool_call_id=block.tool_use_id or "")


def _assistant(content: _Content, at: int) -> ChatMessage:
    if content is None or isinstance(content, str):
        return ChatMessage("assistant", content or "")
    texts, thoughts, calls = [], [], []
    for number, block in enumerate(content):
        if isinstance(block, str):
            texts.append(block)
        elif block.type == "tool_use":
            if not block.name:
                raise bad(f"messages[{at}].content[{number}].name is missing, expected the tool's name.")
            calls.append(ToolUse(block.id or "", block.name, _arguments(block.input)))
        elif block.type == "thinking":
            thoughts.append(block.thinking or "")
        elif block.text is not None:
            texts.append(block.text)
    return ChatMessage("assistant", joined(texts or [""]), joined(thoughts or [""]), tuple(calls))


def _arguments(raw: msgspec.Raw) -> str:
    """Return a call's arguments; those that claude-code could not read are again what was sampled."""
    text = raw_text(raw)
    if UNPARSED in text:
        wrapped = arguments_of(ToolUse("", "", text))
        inner = wrapped.get(UNPARSED) if wrapped is not None and len(wrapped) == 1 else None
        sampled = inner.get("raw") if isinstance(inner, dict) else inner
        if isinstance(sampled, str):
            return sampled
    return text or "{}"


def _input(call: ToolUse) -> Any:
    """Return arguments as the object that the wire wants, the text unchanged where it is one."""
    if arguments_of(call) is None:
        return {UNPARSED: {"raw": call.arguments}}
    return msgspec.Raw(call.arguments.encode()) if call.arguments else {}


def _tool(tool: _Tool) -> ToolSpec:
    return ToolSpec(tool.name, tool.description or "", schema_text(tool.input_schema))


def _head(reply: ChatReply) -> dict[str, Any]:
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(reply, ended=False),
    }


def _usage(reply: ChatReply, *, ended: bool) -> dict[str, int]:
    """Return the tokens; here the cached ones are not among the input's."""
    usage = reply.usage
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens if ended else 0,
    }


def _signature(reply: ChatReply) -> str:
    """Return what stands for Anthropic's proof that it thought this: clients drop thoughts that have none."""
    return f"ale-{reply.id}"


def _block(index: int, begun: dict[str, Any], deltas: list[dict[str, str]]) -> Iterator[bytes]:
    yield event(
        "content_block_start", {"type": "content_block_start", "index": index, "content_block": begun}
    )
    for delta in deltas:
        yield event("content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta})
    yield event("content_block_stop", {"type": "content_block_stop", "index": index})


def _error(refusal: Refusal) -> dict[str, Any]:
    kind = _ERRORS[refusal.kind][1]
    if refusal.kind is RefusalKind.UPSTREAM and refusal.retry_after_s is not None:
        kind = "overloaded_error"
    message = refusal.message
    if refusal.kind is RefusalKind.CONTEXT_OVERFLOW:
        message = _overflow(refusal)
    return {"type": "error", "error": {"type": kind, "message": message}}


def _overflow(refusal: Refusal) -> str:
    """Return Anthropic's words, which claude-code and others read the two numbers from.

    Anthropic has other words where the prompt fits and only the answer does not; claude-code then asks again for a shorter
    answer, which is no help here, where the session bounds it. So it is told that the prompt is too long, counting both.
    """
    got = dict(refusal.details)
    limit = got.get("limit")
    if limit is None:
        return "prompt is too long"
    tokens = got.get("prompt", 0)
    if tokens <= limit:
        tokens = got.get("got", max(limit + 1, tokens + got.get("completion", 0)))
    return f"prompt is too long: {tokens} tokens > {limit} maximum"
