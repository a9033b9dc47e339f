"""What the three wire formats have in common: the interface that `gateway` uses, and reading and writing bodies.

A dialect is pure: bytes and headers in, a `ChatRequest` out; a `ChatReply` or a `Refusal` in, bytes out. It knows no token,
no session and no socket. Fields that nothing here reads are skipped unread, so that agents may send what they like; a field
that is read and has the wrong type is one `Refusal` that names its path.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from agent_runtime.chat import ChatReply, ChatRequest, Refusal, RefusalKind, ToolUse

__all__ = [
    "JSON_HEADERS",
    "MESSAGES_MOST",
    "NOT_TEXT",
    "PARTS_MOST",
    "RETRY_AFTER_S",
    "STREAM_HEADERS",
    "TOOLS_MOST",
    "Answer",
    "Content",
    "Dialect",
    "Headers",
    "Part",
    "arguments_of",
    "bad",
    "call_id",
    "comment",
    "decode",
    "encode",
    "event",
    "joined",
    "not_text",
    "pieces",
    "raw_text",
    "retry_headers",
    "schema_text",
    "text_of",
]

Headers = tuple[tuple[str, str], ...]
Answer = tuple[int, Headers, bytes]
"""Status, headers, body."""

JSON_HEADERS: Headers = (("content-type", "application/json"),)
STREAM_HEADERS: Headers = (
    ("content-type", "text/event-stream; charset=utf-8"),
    ("cache-control", "no-cache"),
    ("x-accel-buffering", "no"),  # a proxy in between would hold the signs of life back
)

MESSAGES_MOST = msgspec.Meta(max_length=8192)
"""Messages, or items of input, of one request: an agent's longest history many times over."""
PARTS_MOST = msgspec.Meta(max_length=4096)
"""Parts (blocks, calls) of one message."""
TOOLS_MOST = msgspec.Meta(max_length=1024)
MOST_NESTED = 100
"""Levels of a tool's schema: what is nested deeper could not be rendered."""
PIECE_CHARS, MOST_PIECES = 256, 256
"""Characters of one delta, more where that many pieces would not do. The answer is known whole, so this only decides how
many events an agent reads."""
RETRY_AFTER_S = 1.0
"""Sent with a 429 that names no time: without the header codex gives up at once."""
NO_PARAMETERS = '{"type":"object","properties":{}}'

NOT_TEXT = {
    "image": "an image",
    "image_url": "an image",
    "input_image": "an image",
    "computer_screenshot": "an image",
    "audio": "audio",
    "audio_url": "audio",
    "input_audio": "audio",
    "video": "a video",
    "video_url": "a video",
    "file": "a file",
    "input_file": "a file",
    "document": "a document",
    "container_upload": "a file",
}
"""Types of parts that hold no text, and what a refusal calls them."""
_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""Each escape of a JSON text; group 1 is a half of a surrogate pair whose other half is missing."""

_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
"""The texts of a JSON text, and its brackets outside of them."""

T = TypeVar("T")


class Dialect(Protocol):
    """One provider's wire format."""

    @property
    def name(self) -> str:
        """Return `chat`, `responses` or `messages`."""
        ...

    @property
    def path(self) -> str:
        """Return the path that requests for an answer are posted to."""
        ...

    def parse(self, body: bytes, headers: Mapping[str, str]) -> ChatRequest:
        """Return what a request asks for; `headers` have lower-case names. Raise `Refusal` (`BAD_REQUEST`)."""
        ...

    def reply(self, reply: ChatReply, request: ChatRequest) -> bytes:
        """Return an answer as JSON, to be sent with `JSON_HEADERS`."""
        ...

    def stream(self, reply: ChatReply, request: ChatRequest, opened: str = "") -> Iterator[bytes]:
        """Yield an answer as server-sent events, the terminator included, to be sent with `STREAM_HEADERS`.

        `opened` is the id that `opening` was given; empty where the stream begins here.
        """
        ...

    def opening(self, request: ChatRequest, opened: str) -> bytes:
        """Return what a stream may begin with while the answer is not there yet; `opened` is an id of this request's own."""
        ...

    def keep_alive(self, request: ChatRequest, opened: str) -> bytes:
        """Return a sign of life that may follow `opening` any number of times, and that resets agents' idle timers."""
        ...

    def refuse(self, refusal: Refusal) -> Answer:
        """Return status, headers and body of the error, such that the agent's own logic repeats, compacts or gives up."""
        ...

    def refuse_mid_stream(self, refusal: Refusal, opened: str = "") -> bytes:
        """Return the last event of a stream that has begun (`opened` as in `stream`) and gets no answer."""
        ...


class Part(msgspec.Struct, gc=False):
    """A part of a message's content, in any dialect."""

    type: str = "text"
    text: str | None = None
    refusal: str | None = None


Content = str | Annotated[list[Part | str], PARTS_MOST] | None
"""What a message says."""


def decode(body: bytes, decoder: msgspec.json.Decoder[T], api: str) -> T:
    """Return a body's fields. Raise `Refusal` naming the field that has the wrong type, or what is no JSON.

    Half a surrogate pair, which JavaScript agents send where they cut a text, becomes U+FFFD.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _misfit(error, api) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        mended = _ESCAPES.sub(_whole, body)
        if mended != body:
            return decode(mended, decoder, api)
        raise bad(f"the body is not JSON: {error}. Send one JSON object in UTF-8.") from error


def _whole(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if escape[1] else escape[0]


def _misfit(error: msgspec.ValidationError, api: str) -> Refusal:
    what, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`").lstrip(".")
    what = what[:1].lower() + what[1:].replace("`", "").replace(" | ", " or ")
    return bad(f"{path or 'the body'} does not fit: {what}. Send it as the {api} API has it.")


def bad(message: str) -> Refusal:
    """Return the refusal of a malformed request."""
    return Refusal(RefusalKind.BAD_REQUEST, message)


def text_of(content: Content, field: str, index: int, name: str = "content") -> str:
    """Return the text of a content, its parts on lines of their own. Raise `Refusal` for what is no text."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for number, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
        elif part.text is not None:
            texts.append(part.text)
        elif part.refusal is not None:
            texts.append(part.refusal)
        else:
            raise not_text(part.type, f"{field}[{index}].{name}[{number}]")
    return joined(texts)


def not_text(kind: str, at: str) -> Refusal:
    """Return the refusal of a part that the model cannot read."""
    what = NOT_TEXT.get(kind)
    if what is None:
        return bad(f"{at} is of type {kind!r} and has no text, expected text. Send text only.")
    sense = {"an image": "vision", "a video": "vision", "audio": "hearing"}.get(what, "access to files")
    return bad(f"{at} is {what}; the model has no {sense}, expected text. Send text only.")


def joined(texts: list[str]) -> str:
    """Return several texts as one; empty ones leave no trace."""
    return texts[0] if len(texts) == 1 else "\n".join(filter(None, texts))


def schema_text(raw: msgspec.Raw) -> str:
    """Return a tool's schema as it was sent; that of no arguments where there is none."""
    text = raw_text(raw)
    if text in ("", "null"):
        return NO_PARAMETERS
    if text.count("{") + text.count("[") > MOST_NESTED and _depth(text) > MOST_NESTED:
        raise bad(f"a tool's schema is nested deeper than {MOST_NESTED} levels. Send a flatter one.")
    return text


def _depth(text: str) -> int:
    """Return how deep a JSON text is nested."""
    depth = deepest = 0
    for mark in _BRACKETS.findall(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(mark, 0)
        deepest = max(deepest, depth)
    return deepest


def raw_text(raw: msgspec.Raw) -> str:
    """Return JSON that is passed on unread; it is not checked to be UTF-8 by the decoder."""
    return bytes(raw).decode(errors="replace")


def call_id(reply: ChatReply, number: int) -> str:
    """Return the id of one of a reply's calls: agents need one to answer it."""
    return reply.tool_calls[number].id or f"call_{reply.id}_{number}"


def arguments_of(call: ToolUse) -> dict[str, Any] | None:
    """Return a call's arguments, or None where they are no JSON object."""
    try:
        return _OBJECT.decode(call.arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return None


_OBJECT = msgspec.json.Decoder(dict[str, Any])


def pieces(text: str) -> Iterator[str]:
    """Yield a text in several pieces, as a model that is read while it speaks; nothing for no text."""
    size = max(1, min(PIECE_CHARS, -(-len(text) // 2)), -(-len(text) // MOST_PIECES))
    for start in range(0, len(text), size):
        yield text[start : start + size]


encode = msgspec.json.encode


def event(kind: str, data: Mapping[str, Any]) -> bytes:
    """Return a named server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode(data))


def comment(text: str) -> bytes:
    """Return a line of a stream that no client shows to its caller."""
    return b": %b\n\n" % text.encode()


def retry_headers(refusal: Refusal, status: int) -> Headers:
    """Return the headers of an error: always when to come back with a 429, and with another where it is known."""
    after_s = refusal.retry_after_s
    if after_s is None and status == 429:
        after_s = RETRY_AFTER_S
    if after_s is None:
        return JSON_HEADERS
    return (
        *JSON_HEADERS,
        ("retry-after", str(max(1, math.ceil(after_s)))),
        (
            "retry-after-ms",
            str(max(0, round(after_s * 1000))),
        ),  # what both providers' own clients look at first
    )
