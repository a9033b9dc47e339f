"""How long the texts of a request may be, and how many: what is kept in a record, or handed to a kernel, is small.

Used by the boundary for every message. Bytes, such as a file's, are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from rock_env.errors import InvalidArgument

__all__ = ["check_sizes"]


@dataclass(frozen=True, slots=True)
class _Bound:
    """Of one field: characters of one text, texts, and characters in all."""

    each: int = 4096
    count: int = 1024
    total: int = 64 << 10


_ONE_WORD = 128 << 10
"""Linux takes no longer word or variable of a command."""
_ACTION = 1 << 20
_WORDS = _Bound(each=_ONE_WORD, count=1 << 15, total=1 << 20)
_BOUNDS: Mapping[str, _Bound] = {
    "argv": _WORDS,
    "ExecStart.env": _WORDS,
    "OpenSessionRequest.env": _WORDS,
    "SandboxSpec.env": _Bound(each=64 << 10, total=256 << 10),
    "action": _Bound(each=_ACTION),
    "params_json": _Bound(each=64 << 10),
    "command": _Bound(each=1 << 20, total=1 << 20),
    "labels": _Bound(count=64),
    "idempotency_key": _Bound(each=1024),
    "id": _Bound(each=256),
    "page_token": _Bound(each=256),
}
"""By field, or by message and field; any other text has the defaults."""
_TURNS = frozenset(
    f"rock.v1.{name}Request"
    for name in (
        *("Make", "ListSplits", "Reset", "Step", "Evaluate", "Restore", "Close"),
        *("MakeMany", "ResetMany", "StepMany", "EvaluateMany", "CloseMany"),
    )
)
"""Messages of environments: arguments and keys are checked where they are used, so a small one is not looked at here."""


def check_sizes(message: Any) -> None:
    """Raise `InvalidArgument` for a message with a text that is too long, or with too many."""
    if message.DESCRIPTOR.full_name not in _TURNS or message.ByteSize() > _ACTION:
        _check(message, message.DESCRIPTOR.name)


def _check(message: Any, name: str) -> None:
    for field, value in message.ListFields():
        kind = _kind(field)
        if kind is None:
            continue
        if kind == "text":
            _check_texts((value,), name, field)
        elif kind == "texts":
            _check_texts(value, name, field)
        elif kind == "table":
            _check_texts([*value, *value.values()], name, field, entries=len(value))
        elif kind == "message":
            _check(value, field.message_type.name)
        else:
            for one in value:
                _check(one, field.message_type.name)


@cache
def _kind(field: FieldDescriptor) -> str | None:
    """Return what a field holds, where that can be text."""
    inner: Descriptor | None = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        return "table"
    if inner is not None:
        return "messages" if field.is_repeated else "message"
    if field.type != FieldDescriptor.TYPE_STRING:
        return None
    return "texts" if field.is_repeated else "text"


def _check_texts(texts: Iterable[str], message: str, field: FieldDescriptor, *, entries: int = 0) -> None:
    bound = _BOUNDS.get(f"{message}.{field.name}") or _BOUNDS.get(field.name) or _Bound()
    lengths = [len(text) for text in texts]
    for what, got, most in (
        ("entries", entries or len(lengths), bound.count),
        ("characters in one text", max(lengths, default=0), bound.each),
        ("characters in all", sum(lengths), max(bound.total, bound.each)),
    ):
        if got > most:
            raise InvalidArgument(
                f"{field.name} of {message} is too large: got {got} {what}, expected at most {most}."
            )
