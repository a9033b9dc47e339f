"""Turns what callers sent into messages, within bounds of size, number and depth, and off the event loop where it is long.

Used by the boundary of gRPC, the REST face and the E2B face, for callers who were admitted. A message's size says
little about what it costs: 64 MiB of empty items would be gigabytes once parsed, so items are counted before.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter as Tally
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from rock_env.arguments import shown
from rock_env.errors import InvalidArgument

__all__ = [
    "MAX_BATCH_BYTES",
    "MAX_DEPTH",
    "MAX_ITEMS",
    "MAX_JSON_BYTES",
    "SMALL_BYTES",
    "check_counts",
    "is_short_work",
    "load_json",
    "off_loop",
    "whole_number",
]

MAX_JSON_BYTES = 1 << 20
"""Of one JSON message. What is larger comes as raw bytes, or as a stream of messages."""
MAX_BATCH_BYTES = 8 << 20
"""Of the JSON of a batch (`items`), and of one message of a stream that carries bytes in base64."""
MAX_ITEMS = 1 << 16
"""List entries and map entries of one message, with all that is in it."""
MAX_DEPTH = 100
"""Messages within messages; protobuf's own limit."""
SMALL_BYTES = 4 << 10
"""JSON up to here is parsed on the event loop, in a few milliseconds at worst."""

_MAX_MEMBERS = 8 * MAX_ITEMS
"""Fields of one message, with all that is in it."""
_AT_ONCE = 2
_POOL = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="rock-parse")
"""Its own, so that parsing waits for parsing and nothing else does."""

T = TypeVar("T")


async def off_loop(act: Callable[..., T], *args: Any) -> T:
    """Return what `act` returns, in a thread of the pool; what nobody waits for any more is not begun."""
    return await asyncio.get_running_loop().run_in_executor(_POOL, act, *args)


def whole_number(text: str, what: str, least: int, most: int) -> int:
    """Return the number that a text of a caller's is. Raise `InvalidArgument` for none, and for one out of bounds."""
    plain = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not plain or not least <= int(text) <= most:
        raise InvalidArgument(f"{what} must be a whole number from {least} to {most}, got {shown(text)}")
    return int(text)


def load_json(text: str | bytes, stop: threading.Event | None = None) -> Any:
    """Return what JSON holds. Raise `ValueError` for none, and `InvalidArgument` for too many members or items.

    It gives up when `stop` is set: nobody waits for it any more.
    """
    members = items = 0
    plain = text if isinstance(text, bytes) else text.encode(errors="replace")
    escaped = rb"\ud" in plain.lower()

    def checked(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal members, items
        if stop is not None and stop.is_set():
            raise InvalidArgument("the caller has gone")
        for name, value in pairs if escaped else ():
            if _halved(name) or _halved(value):
                raise ValueError(f"{name[:80]!r} holds half a surrogate pair")
        members += len(pairs)
        items += 1 + sum(len(value) for _, value in pairs if isinstance(value, list))
        if members > _MAX_MEMBERS or items > MAX_ITEMS:
            raise _too_many()
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(name for name, count in Tally(name for name, _ in pairs).items() if count > 1)
            raise ValueError(f"duplicate key {twice}")
        return found

    return json.loads(text, object_pairs_hook=checked)


def _halved(value: object) -> bool:
    """Whether a text, or one of a list, holds half a surrogate pair, which is no text to protobuf."""
    if isinstance(value, list):
        return any(map(_halved, value))
    try:
        if isinstance(value, str):
            value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _too_many() -> InvalidArgument:
    return InvalidArgument(
        f"a message holds more than {MAX_ITEMS} items, or {_MAX_MEMBERS} fields, in all. Send it in several calls."
    )


# -- protobuf


@dataclass(frozen=True, slots=True)
class _Part:
    """What a field holds that has to be counted."""

    repeated: bool
    packable: bool
    inner: Descriptor | None
    """Its message, where that can hold something repeated."""


@cache
def _parts(message: Descriptor) -> Mapping[int, _Part]:
    """Return the fields of a message that are repeated, or hold what is."""
    parts = {}
    for field in message.fields:
        repeated = field.is_repeated
        packable = repeated and field.type not in (
            FieldDescriptor.TYPE_STRING,
            FieldDescriptor.TYPE_BYTES,
            FieldDescriptor.TYPE_MESSAGE,
        )
        inner = field.message_type
        counted = inner is not None and _repeats(inner, frozenset())
        if repeated or counted:
            parts[field.number] = _Part(repeated, packable, inner if counted else None)
    return parts


def _repeats(message: Descriptor, above: frozenset[str]) -> bool:
    if message.full_name in above:
        return True  # a message within itself: a list of one after the other
    above |= {message.full_name}
    return any(
        field.is_repeated or (field.message_type is not None and _repeats(field.message_type, above))
        for field in message.fields
    )


class _Counter:
    def __init__(self, data: bytes, fields: int) -> None:
        self.data = data
        self.fields = fields
        self.items = MAX_ITEMS

    def count(self, parts: Mapping[int, _Part], at: int, end: int, depth: int) -> None:
        """Count what stands between two places. What is no message ends it: the parser says what is wrong."""
        if depth > MAX_DEPTH:
            raise InvalidArgument(f"a message is nested deeper than {MAX_DEPTH}. Send a flatter one.")
        data = self.data
        while at < end:
            self.fields -= 1
            tag, at = _varint(data, at, end)
            part, kind = parts.get(tag >> 3), tag & 7
            length = 0
            if kind == 2:
                length, at = _varint(data, at, end)
            elif kind == 0:
                _, at = _varint(data, at, end)
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            if part is not None and part.repeated:
                self.items -= max(1, length) if part.packable and kind == 2 else 1
            if self.fields < 0 or self.items < 0:
                raise _too_many()
            if part is not None and part.inner is not None and kind == 2:
                self.count(_parts(part.inner), at, min(at + length, end), depth + 1)
            at += length


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number and where it ends; behind the end where it is torn."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, end


def check_counts(data: bytes, message: Descriptor, *, fields: int = _MAX_MEMBERS) -> None:
    """Raise `InvalidArgument` where a serialised message holds more items, fields or levels than are allowed."""
    parts = _parts(message)
    if parts and len(data) > MAX_ITEMS:  # each item takes a byte at least
        _Counter(data, fields).count(parts, 0, len(data), 1)


def is_short_work(data: bytes, message: Descriptor) -> bool:
    """Return whether a message has so few fields that it is parsed at once, however many bytes they hold."""
    try:
        check_counts(data, message, fields=1_000)
    except InvalidArgument:
        return False
    return True
