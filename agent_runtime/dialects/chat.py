"""OpenAI's chat completions, `/v1/chat/completions`: qwen-code, opencode, pi, mini-swe-agent, aider and most others.

Wire: https://platform.openai.com/docs/api-reference/chat, with `reasoning_content` as DeepSeek, vLLM and SGLang have it.
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
from agent_runtime.dialects import openai_errors
from agent_runtime.dialects.base import (
    MESSAGES_MOST,
    PARTS_MOST,
    TOOLS_MOST,
    Answer,
    Content,
    bad,
    call_id,
    comment,
    decode,
    encode,
    pieces,
    schema_text,
    text_of,
)
from agent_runtime.dialects.fields import Format, choice_of, format_of, none_of, stop_of, tokens_of

__all__ = ["CHAT"]

_API = "chat completions"
_MOST_STOPS = 4
_MOST_ANSWERS = 32
"""Half of what a session may have sampled at once."""
_ROLES: dict[str, Literal["system", "user", "assistant", "tool"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class _Function(msgspec.Struct, gc=False):
    name: str
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct, gc=False):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct, gc=False):
    role: str
    content: Content = None
    reasoning_content: str | None = None
    reasoning: Any = None
    tool_calls: Annotated[list[_Call], PARTS_MOST] | None = None
    tool_call_id: str | None = None


class _ToolFunction(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw()


class _Tool(msgspec.Struct):
    type: str = "function"
    function: _ToolFunction | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Body(msgspec.Struct):
    messages: Annotated[list[_Message], MESSAGES_MOST]
    model: str | None = None
    tools: Annotated[list[_Tool], TOOLS_MOST] | None = None
    tool_choice: Any = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)] | None = None
    n: int | None = None
    best_of: int | None = None
    logprobs: bool | int | None = None
    top_logprobs: int | None = None
    response_format: Format | None = None
    modalities: list[str] | None = None
    audio: Any = None
    web_search_options: Any = None
    functions: list[Any] | None = None
    function_call: Any = None


_DECODER = msgspec.json.Decoder(_Body)


class _Chat:
    """See `Dialect`."""

    name = "chat"
    path = "/v1/chat/completions"

    def parse(self, body: bytes, headers: Mapping[str, str]) -> ChatRequest:
        """Return what a request asks for. Raise `Refusal`."""
        fields = decode(body, _DECODER, _API)
        _check(fields)
        if not fields.messages:
            raise bad("messages is empty, expected at least one message.")
        options = fields.stream_options
        asked, conversation = _asked(headers)
        wished = tokens_of("max_completion_tokens", fields.max_completion_tokens)
        retired = tokens_of("max_tokens", fields.max_tokens)
        return ChatRequest(
            messages=tuple([_message(message, at) for at, message in enumerate(fields.messages)]),
            tools=tuple([_tool(tool.function) for tool in fields.tools or () if tool.function is not None]),
            model=fields.model or "",
            stream=bool(fields.stream),
            max_tokens=retired if wished is None else wished,
            tool_choice=choice_of(fields.tool_choice),
            stop=stop_of("stop", fields.stop, _MOST_STOPS, blank=True),
            seed=fields.seed,
            n=1 if fields.n is None else fields.n,
            asked=asked,
            conversation=conversation,
            include_usage=not fields.stream or bool(options and options.include_usage),
        )

    def reply(self, reply: ChatReply, request: ChatRequest) -> bytes:
        """Return a `chat.completion`, with a choice for each answer."""
        choices = [
            {"index": index, "message": _said(each), "logprobs": None, "finish_reason": each.finish}
            for index, each in enumerate((reply, *reply.others))
        ]
        return encode(
            {
                "id": f"chatcmpl-{reply.id}",
                "object": "chat.completion",
                "created": reply.created_s,
                "model": reply.model,
                "choices": choices,
                "usage": _usage(reply),
            }
        )

    def stream(self, reply: ChatReply, request: ChatRequest, opened: str = "") -> Iterator[bytes]:
        """Yield `chat.completion.chunk` events, one answer after the other, and `[DONE]`."""
        head = {
            "id": f"chatcmpl-{reply.id}",
            "object": "chat.completion.chunk",
            "created": reply.created_s,
            "model": reply.model,
        }
        for index, each in enumerate((reply, *reply.others)):
            for delta in _deltas(each):
                choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}
                yield _data({**head, "choices": [choice]})
            last = {"index": index, "delta": {}, "logprobs": None, "finish_reason": each.finish}
            yield _data({**head, "choices": [last]})
        if request.include_usage:
            yield _data({**head, "choices": [], "usage": _usage(reply)})
        yield b"data: [DONE]\n\n"

    def opening(self, request: ChatRequest, opened: str) -> bytes:
        """Return a comment: a chunk would have to name the answer's id."""
        return comment("waiting")

    def keep_alive(self, request: ChatRequest, opened: str) -> bytes:
        """Return a comment."""
        return comment("waiting")

    def refuse(self, refusal: Refusal) -> Answer:
        """Return the error in OpenAI's form."""
        return openai_errors.refuse(refusal, _overflow(refusal), "messages")

    def refuse_mid_stream(self, refusal: Refusal, opened: str = "") -> bytes:
        """Return the error as an event; no `[DONE]` follows, so that a client which skips it sees a broken stream."""
        return _data({"error": openai_errors.said(refusal, _overflow(refusal), "messages")})


CHAT = _Chat()


def _check(fields: _Body) -> None:
    """Raise `Refusal` for what would make the answer another one than is given here."""
    if fields.n is not None and not 1 <= fields.n <= _MOST_ANSWERS:
        raise Refusal(
            RefusalKind.BAD_REQUEST,
            f"n is {fields.n}, expected 1 to {_MOST_ANSWERS}. For more answers send several requests, each with another "
            "`seed`: requests that are the same share their samples.",
            param="n",
        )
    if fields.functions:
        raise bad("functions is the retired form of tools and is not read. Send the functions as tools.")
    if fields.logprobs or fields.top_logprobs:
        raise Refusal(
            RefusalKind.BAD_REQUEST,
            "You are not allowed to request logprobs from this model.",
            param="logprobs",
        )
    format_of("response_format", fields.response_format)
    none_of(
        function_call=fields.function_call,
        audio=fields.audio,
        web_search_options=fields.web_search_options,
        modalities=[each for each in fields.modalities or () if each != "text"],
        best_of=(fields.best_of or 0) > 1,
    )


def _said(reply: ChatReply) -> dict[str, Any]:
    """Return the message of a choice."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": reply.text if reply.text or not reply.tool_calls else None,
        "refusal": None,
    }
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [
            {
                "id": call_id(reply, number),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(reply.tool_calls)
        ]
    return message


def _deltas(reply: ChatReply) -> Iterator[dict[str, Any]]:
    """Yield what the chunks of a choice add, one after the other."""
    yield {"role": "assistant", "content": ""}
    for text in pieces(reply.reasoning):
        yield {"reasoning_content": text}
    for text in pieces(reply.text):
        yield {"content": text}
    for number, call in enumerate(reply.tool_calls):
        begun = {"name": call.name, "arguments": ""}
        yield {
            "tool_calls": [
                {"index": number, "id": call_id(reply, number), "type": "function", "function": begun}
            ]
        }
        for text in pieces(call.arguments):
            yield {"tool_calls": [{"index": number, "function": {"arguments": text}}]}


def _message(message: _Message, at: int) -> ChatMessage:
    role = _ROLES.get(message.role)
    if role is None:
        raise bad(f"messages[{at}].role is {message.role!r}, expected one of {', '.join(_ROLES)}.")
    content = message.content
    text = content if isinstance(content, str) else text_of(content, "messages", at)
    if role == "tool":
        return ChatMessage("tool", text, tool_call_id=message.tool_call_id or "")
    if role != "assistant":
        return ChatMessage(role, text)
    reasoning = message.reasoning_content or message.reasoning
    calls = [
        ToolUse(call.id or "", call.function.name, _arguments(call.function.arguments))
        for call in message.tool_calls or ()
    ]
    return ChatMessage("assistant", text, reasoning if isinstance(reasoning, str) else "", tuple(calls))


def _arguments(arguments: str | dict[str, Any] | None) -> str:
    if isinstance(arguments, str):
        return arguments
    return encode(arguments or {}).decode()


def _tool(tool: _ToolFunction) -> ToolSpec:
    return ToolSpec(tool.name, tool.description or "", schema_text(tool.parameters))


def _asked(headers: Mapping[str, str]) -> tuple[Asked, str]:
    """Return what opencode says in headers: a sub-agent's session has a parent."""
    parent = headers.get("x-parent-session-id", "")
    if not parent:
        return Asked.UNSAID, ""
    own = headers.get("x-session-id") or headers.get("x-session-affinity")
    return Asked.SUB_AGENT, own or f"child of {parent}"


def _usage(reply: ChatReply) -> dict[str, Any]:
    """Return the usage of a request: its prompt counts once, the tokens of all its answers do."""
    usage = reply.usage
    sampled = usage.completion_tokens + sum(other.usage.completion_tokens for other in reply.others)
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": sampled,
        "total_tokens": usage.prompt_tokens + sampled,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def _overflow(refusal: Refusal) -> str:
    """Return the words that clients look for: `maximum context length is N tokens`, `reduce the length of the messages`."""
    got = dict(refusal.details)
    limit, prompt, completion = got.get("limit"), got.get("prompt"), got.get("completion")
    if limit is None:
        return (
            "Your input exceeds the context window of this model. Please reduce the length of the messages."
        )
    text = f"This model's maximum context length is {limit} tokens."
    if prompt is not None and completion is not None and prompt <= limit:
        return (
            f"{text} However, you requested {prompt + completion} tokens ({prompt} in the messages, {completion} in the "
            "completion). Please reduce the length of the messages or completion."
        )
    shown = prompt if prompt is not None else got.get("got", limit + 1)
    return (
        f"{text} However, your messages resulted in {shown} tokens. Please reduce the length of the messages."
    )


def _data(data: Mapping[str, Any]) -> bytes:
    return b"data: %b\n\n" % encode(data)
