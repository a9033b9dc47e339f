"""One budget for what a file or record of somebody else may take in memory once it is decoded, checked before it is.

Used by every reader of records, documents and packs. A small file can be large when it is read: a byte of msgpack may be an
object. So elements are counted in the bytes as they are, each at more than any takes, and texts and bytes by their size.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rock_env.errors import InvalidArgument
from rock_env.foreign.files import open_regular, parsed, plain_values, read_text

__all__ = [
    "VARIABLE",
    "check_json",
    "check_msgpack",
    "check_size",
    "lines",
    "most_bytes",
    "read_json",
    "read_open",
    "read_settings",
    "read_whole",
]

VARIABLE = "ALE_MOST_DECODED_MIB"
_DEFAULT_MIB = 256
_ELEMENT_BYTES = 128
"""More than any decoded element takes: a dictionary of no entry has 64 bytes, 16 of the collector and its place of 8."""
_WIDEST = 4
"""Bytes of a character in memory, where one of its text needs as many."""
_JSON = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
_LENGTHS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Of msgpack's types that say how long they are: bytes of that number."""
_TYPED = frozenset({0xC7, 0xC8, 0xC9})
"""Those of them with a byte more: extensions."""
_FIXED = (
    {0xC0: 0, 0xC1: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
    | {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
    | {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
)
"""Of all others: bytes after the first. What a list or map holds follows as elements of its own."""


def most_bytes() -> int:
    """Return the budget in bytes. Raise `InvalidArgument` for a setting that is no number of MiB."""
    said = os.environ.get(VARIABLE, "")
    if not said:
        return _DEFAULT_MIB << 20
    if not (said.isascii() and said.isdigit() and 0 < int(said[:10]) < 1 << 30):
        raise InvalidArgument(f"{VARIABLE} is {said[:40]!r}, expected a number of MiB from 1 on.")
    return int(said) << 20


def check_size(size: int, what: str) -> None:
    """Check what is about to be read or unpacked, `size` bytes. Raise `InvalidArgument`."""
    if size > most_bytes():
        raise _too_much(what, str(size))


def check_msgpack(content: bytes, what: str) -> None:
    """Check a msgpack value before it is decoded. Raise `InvalidArgument`; what is no msgpack is left to the decoder."""
    most = most_bytes()
    check_size(len(content), what)
    if len(content) * _ELEMENT_BYTES > most and _cost_of_msgpack(content, most) > most:
        raise _too_much(what, f"more than {most}")


def check_json(content: bytes, what: str) -> None:
    """Check a JSON value before it is decoded. Raise `InvalidArgument`; what is no JSON is left to the decoder."""
    most = most_bytes()
    check_size(len(content), what)
    if len(content) * _ELEMENT_BYTES <= most:
        return
    wide = 1 if content.isascii() and rb"\u" not in content else _WIDEST
    cost = _ELEMENT_BYTES
    for found in _JSON.finditer(content):
        cost += _ELEMENT_BYTES + (found.end() - found.start()) * wide
        if cost > most:
            raise _too_much(what, f"more than {most}")


def read_whole(path: Path, what: str) -> bytes:
    """Return a file's content. Raise `InvalidArgument` for one beyond the budget, `OSError` for one that cannot be read."""
    with open_regular(path) as file:
        return read_open(file, what)


def read_open(file: BinaryIO, what: str) -> bytes:
    """Return what an open file holds. Raise `InvalidArgument` for one beyond the budget."""
    check_size(os.fstat(file.fileno()).st_size, what)
    content = file.read(most_bytes() + 1)
    check_size(len(content), what)
    return content


def read_json(path: Path, what: str) -> bytes:
    """Return a JSON file's content, checked before it is decoded. Raise as `read_whole` does."""
    content = read_whole(path, what)
    check_json(content, what)
    return content


def read_settings(path: Path) -> dict[str, Any]:
    """Return a TOML file's values. Raise `OSError`, or `InvalidArgument` for one that is malformed, too deep or too long."""
    found = parsed(tomllib.loads, read_text(path), f"{path} is not valid TOML")
    return plain_values(found, f"{path}")


def lines(path: Path, what: str) -> Iterator[bytes]:
    """Yield a file's lines with their ends. Raise as `read_whole` does, for one line that is beyond the budget."""
    most, number = most_bytes(), 0
    with open_regular(path) as file:
        while line := file.readline(most + 1):
            number += 1
            check_size(len(line), f"{what} line {number}")
            yield line


def _cost_of_msgpack(content: bytes, most: int) -> int:
    """Return what the value takes in memory at most, or something above `most`."""
    at = cost = 0
    end = len(content)
    while at < end and cost <= most:
        kind = content[at]
        at += 1
        cost += _ELEMENT_BYTES
        if kind < 0xA0 or kind >= 0xE0:
            continue
        if kind < 0xC0:
            size, is_text = kind & 31, True
        elif kind in _LENGTHS:
            width = _LENGTHS[kind]
            size, is_text = int.from_bytes(content[at : at + width], "big"), kind >= 0xD9
            at += width + (kind in _TYPED)
        else:
            at += _FIXED[kind]
            continue
        cost += size if not is_text or content[at : at + size].isascii() else size * _WIDEST
        at += size
    return cost


def _too_much(what: str, size: str) -> InvalidArgument:
    return InvalidArgument(
        f"{what} takes {size} bytes of memory, the budget is {most_bytes()}: it was not read. If you trust it, raise the "
        f"budget with {VARIABLE}, in MiB ({most_bytes() >> 20} now)."
    )
