"""The canonical form of a history: what stays the same when an agent sends back what it was told.

Read by `tree`. Agents re-serialise arguments, turn `''` into null, trim or drop reasoning, split one answer into several
messages and rename tool calls; none of that makes a history another one. Digests only: nothing here keeps a text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from agent_runtime.chat import ChatMessage, ToolSpec, ToolUse

__all__ = [
    "Canonical",
    "Item",
    "canonical_items",
    "canonical_json",
    "canonical_text",
    "digest",
    "joined",
    "marked_items",
    "tools_digest",
]

_NOTHING = ("", "null", "{}")


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One message in canonical form; neighbouring messages of the assistant are one."""

    message: ChatMessage
    digest: bytes
    end: int
    """How many raw messages of the history lie up to here."""


@dataclass(frozen=True, slots=True, eq=False)
class Canonical:
    """The canonical form of a whole request, where it was found elsewhere: that of a large one takes a while."""

    items: tuple[Item, ...]
    tools: bytes


def canonical_items(messages: Sequence[ChatMessage]) -> Iterator[Item]:
    """Yield a history's messages, each with its digest. Linear in their text."""
    calls: dict[str, int] = {}
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        if message.role == "assistant":
            begun = at - 1
            while at < len(messages) and messages[at].role == "assistant":
                at += 1
            message = joined(messages[begun:at])
            calls = {call.id: number for number, call in enumerate(message.tool_calls)}
        yield Item(message, digest(message, calls.get(message.tool_call_id, -1)), at)


def marked_items(messages: Sequence[ChatMessage], marks: Sequence[tuple[bytes, int]]) -> Iterator[Item]:
    """Yield what `canonical_items` does, given the digest and the end of each."""
    begun = 0
    for found, end in marks:
        yield Item(joined(messages[begun:end]), found, end)
        begun = end


def digest(message: ChatMessage, answers: int = -1) -> bytes:
    """Return the 16-byte digest of a message; `answers` is the place of the call that a tool message answers.

    Left out: reasoning, the names that agents give to calls, and white space where an answer's text could have gained or
    lost it. The text of others counts but for its ends.
    """
    if message.role == "assistant":
        parts = [canonical_text(message.content)]
        for call in message.tool_calls:
            parts += (call.name, canonical_json(call.arguments))
    else:
        parts = [message.content.strip(), str(answers)]
    return _hash(message.role, parts)


def canonical_text(text: str) -> str:
    """Return an answer's text without white space."""
    return "".join(text.split())


def canonical_json(text: str) -> str:
    """Return JSON with sorted names and numbers as JavaScript has them; what is no JSON without white space at its ends."""
    text = text.strip()
    if text in _NOTHING:
        return "{}"
    try:
        return json.dumps(json.loads(text, parse_int=float), sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return text


def tools_digest(tools: Sequence[ToolSpec]) -> bytes:
    """Return the digest of what an agent offers, whatever its order; `b""` for no tools."""
    if not tools:
        return b""
    told = sorted((tool.name, tool.description.strip(), canonical_json(tool.parameters)) for tool in tools)
    return _hash("tools", [part for tool in told for part in tool])


def joined(run: Sequence[ChatMessage]) -> ChatMessage:
    """Return neighbouring messages of the assistant as one. Linear in their text, however many they are."""
    if len(run) == 1:
        return run[0]
    content = "\n".join(message.content for message in run if message.content)
    reasoning = "\n".join(message.reasoning for message in run if message.reasoning)
    calls: tuple[ToolUse, ...] = tuple(call for message in run for call in message.tool_calls)
    return ChatMessage("assistant", content, reasoning, calls)


def _hash(kind: str, parts: Sequence[str]) -> bytes:
    """Return a digest in which parts cannot run into each other."""
    raw = [part.encode("utf-8", "surrogatepass") for part in parts]
    sizes = ",".join([kind, *(str(len(part)) for part in raw)])
    return blake2b(b"".join([sizes.encode(), b"\0", *raw]), digest_size=16).digest()
