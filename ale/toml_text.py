"""Write a nested mapping as TOML, which Python's standard library only reads.

Every text it returns parses back (`tomllib`) to the values it was given; `None` has no TOML form and is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["render"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def render(values: Mapping[str, Any], *, comments: Mapping[str, str] | None = None) -> str:
    """Return `values` as TOML text. `comments` maps dotted names to the line put above them.

    Raise `TypeError` for a value TOML cannot hold.
    """
    return "\n".join(_table(values, path=(), comments=comments or {})).strip("\n") + "\n"


def _table(values: Mapping[str, Any], *, path: tuple[str, ...], comments: Mapping[str, str]) -> Iterator[str]:
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    for key, value in values.items():
        if key in tables or value is None:
            continue
        yield from _comment(comments, (*path, key))
        yield f"{_key(key)} = {_value(value)}"
    for key, table in tables.items():
        yield ""
        yield from _comment(comments, (*path, key))
        yield f"[{'.'.join(_key(part) for part in (*path, key))}]"
        yield from _table(table, path=(*path, key), comments=comments)


def _comment(comments: Mapping[str, str], path: tuple[str, ...]) -> Iterator[str]:
    if text := comments.get(".".join(path)):
        yield f"# {text}"


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)  # "inf", "nan" and "1e-06" are TOML as they are
        case str():
            return _string(value)
        case Mapping():
            return "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + "}"
        case Sequence():
            return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"TOML cannot hold {value!r} of type {type(value).__name__}")


def _string(text: str) -> str:
    # JSON's escapes are TOML's, except that TOML knows no surrogate pairs and wants DEL escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
