"""Copy fields between values and messages that name them the same. What has another name or form is given by the caller."""

from __future__ import annotations

from collections.abc import MutableMapping, MutableSequence
from dataclasses import fields
from typing import Any, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

__all__ = ["read", "written"]

_T = TypeVar("_T")


def written(value: Any, message: type[_T], **given: object) -> _T:
    """Return a message with every field of a dataclass's value, but for those that are given. Raise `ValueError`."""
    own = {each.name: getattr(value, each.name) for each in fields(value)}
    return message(**{**own, **given})


def read(message: Any, kind: type[_T], **given: object) -> _T:
    """Return a value of a dataclass with its fields from a message, but for those that are given. Raise `AttributeError`."""
    names = (each.name for each in fields(kind) if each.name not in given)  # type: ignore[arg-type]
    return kind(**{name: _plain(getattr(message, name)) for name in names}, **given)


def _plain(given: Any) -> Any:
    """Return a moment as seconds since the epoch, a map as a dict, a repeated field as a tuple; all else as it is."""
    if isinstance(given, Timestamp):
        return given.ToNanoseconds() / 1e9
    if isinstance(given, MutableMapping):
        return dict(given)
    return tuple(given) if isinstance(given, MutableSequence) else given
