"""Small clients of the three wire formats, written from the providers' documentation, not from our dialects.

A `Wire` writes a history as such a client would, reads an answer (JSON or events), and gives it back in the next request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent_runtime.chat import ChatMessage, ChatReply, ToolSpec, ToolUse, Usage
from agent_runtime.dialects import CHAT, MESSAGES, RESPONSES, Dialect

SHELL = ToolSpec("shell", "Run a command.", '{"type":"object","properties":{"command":{"type":"string"}}}')
READ = ToolSpec("read", "Read a file.", '{"type":"object","properties":{"path":{"type":"string"}}}')
CALLS = (ToolUse("call_1", "shell", '{"command": "ls"}'), ToolUse("call_2", "read", '{"path": "a.py"}'))


def reply(**fields: Any) -> ChatReply:
    base: dict[str, Any] = {
        "id": "r1",
        "model": "m",
        "text": "",
        "finish": "stop",
        "usage": Usage(100, 20, 60),
        "created_s": 1_700_000_000,
    }
    return ChatReply(**base | fields)


@dataclass
class Heard:
    """What a client understood of an answer."""

    text: str = ""
    reasoning: str = ""
    calls: list[list[str]] = field(default_factory=list)
    """Id, name, arguments."""
    finish: str = ""
    tokens: tuple[int, int, int] | None = None
    """Prompt (cached ones included), completion, cached."""
    ids: set[str] = field(default_factory=set)
    error: str = ""
    ended: bool = False
    deltas: int = 0


def events(stream: bytes) -> Iterator[tuple[str, Any]]:
    """Yield name and data of each event; comments are passed over."""
    assert stream.endswith(b"\n\n")
    for block in stream.decode().split("\n\n")[:-1]:
        lines = [line for line in block.split("\n") if not line.startswith(":")]
        if not lines:
            continue
        fields = dict(line.split(": ", 1) for line in lines)
        data = fields["data"]
        yield fields.get("event", ""), data if data == "[DONE]" else json.loads(data)


class Wire(Protocol):
    dialect: Dialect

    def body(
        self,
        history: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        parts: bool = False,
        **fields: Any,
    ) -> bytes: ...

    def echo(self, answer: bytes) -> bytes: ...

    def read(self, answer: bytes) -> Heard: ...

    def listen(self, stream: bytes) -> Heard: ...


def _text(text: str, kind: str, parts: bool) -> Any:
    return [{"type": kind, "text": text, "x_unknown": 1}] if parts else text


class ChatWire:
    dialect: Dialect = CHAT
    name = "chat"

    def body(
        self,
        history: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        parts: bool = False,
        **fields: Any,
    ) -> bytes:
        messages = []
        for message in history:
            said: dict[str, Any] = {"role": message.role, "content": _text(message.content, "text", parts)}
            if message.reasoning:
                said["reasoning_content"] = message.reasoning
            if message.tool_calls:
                said["tool_calls"] = [
                    {
                        "id": call.id,
                        "type": "function",
                        "function": {"name": call.name, "arguments": call.arguments},
                    }
                    for call in message.tool_calls
                ]
            if message.role == "tool":
                said["tool_call_id"] = message.tool_call_id
            messages.append(said)
        offered = [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": json.loads(tool.parameters),
                },
            }
            for tool in tools
        ]
        return _dumped({"model": "m", "messages": messages, "tools": offered} | fields)

    def echo(self, answer: bytes) -> bytes:
        message = json.loads(answer)["choices"][0]["message"]
        return _dumped({"model": "m", "messages": [{"role": "user", "content": "go"}, message]})

    def read(self, answer: bytes) -> Heard:
        said = json.loads(answer)
        assert said["object"] == "chat.completion"
        (choice,) = said["choices"]
        message = choice["message"]
        calls = [
            [call["id"], call["function"]["name"], call["function"]["arguments"]]
            for call in message.get("tool_calls", [])
        ]
        return Heard(
            message["content"] or "",
            message.get("reasoning_content", ""),
            calls,
            choice["finish_reason"],
            self._tokens(said["usage"]),
            {said["id"]},
            ended=True,
        )

    def listen(self, stream: bytes) -> Heard:
        heard = Heard()
        for _, data in events(stream):
            assert not heard.ended
            if data == "[DONE]":
                heard.ended = True
                continue
            if "error" in data:
                heard.error = data["error"]["code"] or data["error"]["type"]
                continue
            heard.ids.add(data["id"])
            if data.get("usage"):
                heard.tokens = self._tokens(data["usage"])
            for choice in data["choices"]:
                delta = choice["delta"]
                heard.text += delta.get("content") or ""
                heard.reasoning += delta.get("reasoning_content") or ""
                heard.deltas += bool(delta.get("content"))
                for call in delta.get("tool_calls", []):
                    if "id" in call:
                        assert call["index"] == len(heard.calls)
                        heard.calls.append([call["id"], call["function"]["name"], ""])
                    heard.calls[call["index"]][2] += call["function"]["arguments"]
                heard.finish = choice["finish_reason"] or heard.finish
        return heard

    @staticmethod
    def _tokens(usage: dict[str, Any]) -> tuple[int, int, int]:
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        return (
            usage["prompt_tokens"],
            usage["completion_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"],
        )


class ResponsesWire:
    dialect: Dialect = RESPONSES
    name = "responses"

    def body(
        self,
        history: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        parts: bool = False,
        **fields: Any,
    ) -> bytes:
        items: list[dict[str, Any]] = []
        for message in history:
            if message.role == "tool":
                output = _text(message.content, "input_text", parts)
                items.append(
                    {"type": "function_call_output", "call_id": message.tool_call_id, "output": output}
                )
                continue
            if message.reasoning:
                summary = [{"type": "summary_text", "text": message.reasoning}]
                items.append(
                    {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": None}
                )
            if message.content or not message.tool_calls:
                kind = "output_text" if message.role == "assistant" else "input_text"
                role = "developer" if message.role == "system" else message.role
                items.append(
                    {"type": "message", "role": role, "content": _text(message.content, kind, parts)}
                )
            items += [
                {"type": "function_call", "name": call.name, "arguments": call.arguments, "call_id": call.id}
                for call in message.tool_calls
            ]
        offered = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": json.loads(tool.parameters),
                "strict": False,
            }
            for tool in tools
        ]
        return _dumped({"model": "m", "input": items, "tools": offered, "store": False} | fields)

    def echo(self, answer: bytes) -> bytes:
        user = {"type": "message", "role": "user", "content": "go"}
        return _dumped({"model": "m", "input": [user, *json.loads(answer)["output"]]})

    def read(self, answer: bytes) -> Heard:
        return self._whole(json.loads(answer))

    def _whole(self, said: dict[str, Any]) -> Heard:
        assert said["object"] == "response"
        heard = Heard(ids={said["id"]}, ended=True)
        for item in said["output"]:
            if item["type"] == "message":
                heard.text += "".join(part["text"] for part in item["content"])
            elif item["type"] == "reasoning":
                heard.reasoning += "".join(part["text"] for part in item["summary"])
            else:
                heard.calls.append([item["call_id"], item["name"], item["arguments"]])
        heard.finish = "tool_calls" if heard.calls else "stop"
        if said["status"] == "incomplete":
            assert said["incomplete_details"]["reason"] == "max_output_tokens"
            heard.finish = "length"
        usage = said["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        cached = usage["input_tokens_details"]["cached_tokens"]
        heard.tokens = (usage["input_tokens"], usage["output_tokens"], cached)
        return heard

    def listen(self, stream: bytes) -> Heard:
        heard = Heard()
        whole: Heard | None = None
        order: list[int] = []
        for name, data in events(stream):
            assert name == data["type"]
            assert whole is None
            order.append(data["sequence_number"])
            if "response" in data:
                heard.ids.add(data["response"]["id"])
            match name:
                case "response.output_text.delta":
                    heard.text += data["delta"]
                    heard.deltas += 1
                case "response.reasoning_summary_text.delta":
                    heard.reasoning += data["delta"]
                case "response.output_item.added" if data["item"]["type"] == "function_call":
                    heard.calls.append([data["item"]["call_id"], data["item"]["name"], ""])
                case "response.function_call_arguments.delta":
                    heard.calls[-1][2] += data["delta"]
                case "response.completed" | "response.incomplete":
                    assert (name == "response.incomplete") == (data["response"]["status"] == "incomplete")
                    whole = self._whole(data["response"])
                case "response.failed":
                    heard.error = data["response"]["error"]["code"]
        assert order == sorted(order)
        if whole is not None:
            assert (heard.text, heard.reasoning, heard.calls) == (whole.text, whole.reasoning, whole.calls)
            heard.finish, heard.tokens, heard.ended = whole.finish, whole.tokens, True
        return heard


class MessagesWire:
    dialect: Dialect = MESSAGES
    name = "messages"

    def body(
        self,
        history: Sequence[ChatMessage],
        tools: Sequence[ToolSpec] = (),
        *,
        parts: bool = False,
        **fields: Any,
    ) -> bytes:
        messages: list[dict[str, Any]] = []
        top: dict[str, Any] = {}
        for message in history:
            text = _text(message.content, "text", parts)
            if message.role == "system" and not messages:
                top = {"system": text}
            elif message.role == "tool":
                block = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": text}
                if messages[-1]["role"] == "user":
                    messages[-1]["content"].append(block)
                else:
                    messages.append({"role": "user", "content": [block]})
            elif message.tool_calls or message.reasoning:
                blocks: list[dict[str, Any]] = []
                if message.reasoning:
                    blocks.append({"type": "thinking", "thinking": message.reasoning, "signature": "s"})
                if message.content:
                    blocks.append({"type": "text", "text": message.content})
                blocks += [
                    {
                        "type": "tool_use",
                        "id": call.id,
                        "name": call.name,
                        "input": json.loads(call.arguments),
                    }
                    for call in message.tool_calls
                ]
                messages.append({"role": message.role, "content": blocks})
            else:
                messages.append({"role": message.role, "content": text})
        offered = [
            {"name": tool.name, "description": tool.description, "input_schema": json.loads(tool.parameters)}
            for tool in tools
        ]
        return _dumped({"model": "m", "max_tokens": 9, "messages": messages, "tools": offered} | top | fields)

    def echo(self, answer: bytes) -> bytes:
        said = json.loads(answer)
        echoed = {"role": said["role"], "content": said["content"]}
        return _dumped(
            {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "go"}, echoed]}
        )

    _stops = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls"}  # noqa: RUF012

    def read(self, answer: bytes) -> Heard:
        said = json.loads(answer)
        assert (said["type"], said["role"]) == ("message", "assistant")
        heard = Heard(finish=self._stops[said["stop_reason"]], ids={said["id"]}, ended=True)
        for block in said["content"]:
            if block["type"] == "text":
                heard.text += block["text"]
            elif block["type"] == "thinking":
                heard.reasoning += block["thinking"]
                assert block["signature"]
            else:
                heard.calls.append([block["id"], block["name"], json.dumps(block["input"])])
        heard.tokens = self._tokens(said["usage"])
        return heard

    def listen(self, stream: bytes) -> Heard:
        heard = Heard()
        kind, signature = "", ""
        begun = -1
        for name, data in events(stream):
            assert name == data["type"]
            assert not heard.ended
            if name == "message_start":
                heard.ids.add(data["message"]["id"])
                assert data["message"]["content"] == []
            elif name == "content_block_start":
                begun += 1
                assert data["index"] == begun
                assert not kind
                kind, signature = data["content_block"]["type"], ""
                if kind == "tool_use":
                    heard.calls.append([data["content_block"]["id"], data["content_block"]["name"], ""])
            elif name == "content_block_delta":
                assert data["index"] == begun
                delta = data["delta"]
                if delta["type"] == "text_delta":
                    heard.text += delta["text"]
                    heard.deltas += 1
                elif delta["type"] == "thinking_delta":
                    heard.reasoning += delta["thinking"]
                elif delta["type"] == "signature_delta":
                    signature = delta["signature"]
                else:
                    heard.calls[-1][2] += delta["partial_json"]
            elif name == "content_block_stop":
                assert kind != "thinking" or signature
                kind = ""
            elif name == "message_delta":
                heard.finish = self._stops[data["delta"]["stop_reason"]]
                heard.tokens = self._tokens(data["usage"])
            elif name == "message_stop":
                heard.ended = True
            elif name == "error":
                heard.error = data["error"]["type"]
            else:
                assert name == "ping"
        return heard

    @staticmethod
    def _tokens(usage: dict[str, int]) -> tuple[int, int, int]:
        cached = usage["cache_read_input_tokens"]
        return usage["input_tokens"] + cached, usage["output_tokens"], cached


WIRES: tuple[Wire, ...] = (ChatWire(), ResponsesWire(), MessagesWire())


def _dumped(body: dict[str, Any]) -> bytes:
    return json.dumps(body).encode()
