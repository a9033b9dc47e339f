"""The three wire formats as an agent writes and reads them, for tests: from the providers' references, not from our code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

SYSTEM = "You are an agent."
SCHEMA = {"type": "object", "properties": {"command": {"type": "string"}}}


def events(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the data of a stream's events; comments and pings are not data."""
    for block in body.decode().split("\n\n"):
        for line in block.splitlines():
            if line.startswith("data: ") and line != "data: [DONE]":
                yield json.loads(line.removeprefix("data: "))


@dataclass(frozen=True)
class Wire:
    """One of the formats. `said` is a history of user and assistant in turn."""

    name: str
    path: str

    def body(self, *said: str, stream: bool = False, tools: bool = True, **more: Any) -> dict[str, Any]:
        turns = [("user", "assistant")[number % 2] for number in range(len(said))]
        made: dict[str, Any]
        if self.name == "chat":
            messages = [{"role": role, "content": text} for role, text in zip(turns, said, strict=True)]
            made = {"messages": [{"role": "system", "content": SYSTEM}, *messages]}
            function = {"name": "bash", "description": "Run a command.", "parameters": SCHEMA}
            offered: dict[str, Any] = {"type": "function", "function": function}
            if stream:
                made["stream_options"] = {"include_usage": True}
        elif self.name == "responses":
            kinds = {"user": "input_text", "assistant": "output_text"}
            made = {
                "instructions": SYSTEM,
                "store": False,
                "input": [
                    {"type": "message", "role": role, "content": [{"type": kinds[role], "text": text}]}
                    for role, text in zip(turns, said, strict=True)
                ],
            }
            offered = {
                "type": "function",
                "name": "bash",
                "description": "Run a command.",
                "parameters": SCHEMA,
            }
        else:
            made = {
                "max_tokens": 32_000,
                "system": [{"type": "text", "text": SYSTEM}],
                "messages": [{"role": role, "content": text} for role, text in zip(turns, said, strict=True)],
            }
            offered = {"name": "bash", "description": "Run a command.", "input_schema": SCHEMA}
        return {"model": "m", "stream": stream, **({"tools": [offered]} if tools else {}), **made, **more}

    def headers(self, key: str) -> dict[str, str]:
        if self.name == "messages":
            return {"x-api-key": key, "anthropic-version": "2023-06-01"}
        return {"authorization": f"Bearer {key}"}

    def text(self, body: bytes, *, stream: bool) -> str:
        """Return what an answer says. Fail where a stream has no proper end."""
        if self.name == "chat":
            if not stream:
                return str(json.loads(body)["choices"][0]["message"]["content"] or "")
            assert body.endswith(b"data: [DONE]\n\n")
            deltas = [choice["delta"] for event in events(body) for choice in event["choices"]]
            return "".join(delta.get("content") or "" for delta in deltas)
        if self.name == "responses":
            whole = json.loads(body) if not stream else None
            for event in events(body) if stream else ():
                if event["type"] == "response.completed":
                    whole = event["response"]
            assert whole is not None
            parts = [
                part for item in whole["output"] if item["type"] == "message" for part in item["content"]
            ]
            return "".join(part["text"] for part in parts)
        if not stream:
            return "".join(block.get("text", "") for block in json.loads(body)["content"])
        told = list(events(body))
        assert told[-1]["type"] == "message_stop"
        return "".join(
            event["delta"].get("text", "") for event in told if event["type"] == "content_block_delta"
        )

    def usage(self, body: bytes) -> tuple[int, int]:
        """Return the prompt's and the answer's tokens of an answer that was not streamed."""
        told = json.loads(body)["usage"]
        if self.name == "chat":
            return told["prompt_tokens"], told["completion_tokens"]
        if self.name == "messages":
            cached = told.get("cache_read_input_tokens", 0) + told.get("cache_creation_input_tokens", 0)
            return told["input_tokens"] + cached, told["output_tokens"]
        return told["input_tokens"], told["output_tokens"]


CHAT = Wire("chat", "/v1/chat/completions")
RESPONSES = Wire("responses", "/v1/responses")
MESSAGES = Wire("messages", "/v1/messages")
WIRES = (CHAT, RESPONSES, MESSAGES)
