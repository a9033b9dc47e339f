"""What a terminal is shown: the one function through which all text of commands and servers passes, and streams that use it.

`ale.cli.main` and the server's `main` put these streams in the place of `sys.stdout` and `sys.stderr`, so `print`, logs,
tracebacks and libraries pass too. Bytes written to a stream's `buffer` stay raw: `scripts/check_printing.py` lists who may.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import IO, Any

__all__ = ["VisibleStream", "output_of_children", "raw", "show_visibly", "visible", "visible_streams"]

_STYLE = re.compile(r"(\x1b\[(?:(?:[01234]|22|23|24|39|3[1-6]|9[1-6])(?:;(?=\d)|(?=m)))*m)")
"""What rich, typer and Ray write: bold, dim, italic, underlined, and the text's colour but for black and white. No
background and no concealed text: nothing that makes text invisible."""
_SEEN = frozenset(["L", "M", "N", "P", "S"])
"""The general categories of Unicode whose characters are seen: letters, marks, numbers, punctuation, symbols."""
_NOT_SEEN = frozenset(
    map(chr, (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0, *range(0x180B, 0x1810)))
)
"""Those of them that are blank (Unicode's Default_Ignorable_Code_Point below FE00, and the empty Braille cell)."""
_FIRST_TAG = 0xE0000
"""From here on there are only tags, selectors and private use."""

_LINE = 8192
"""Characters of a child's line that are passed on at a time."""


class _Escapes(dict[int, str]):
    """A table for `str.translate` that is filled as characters come."""

    def __missing__(self, code: int) -> str:
        mark = chr(code)
        category = unicodedata.category(mark)
        seen = (category[0] in _SEEN or category == "Zs") and mark not in _NOT_SEEN and code < _FIRST_TAG
        if seen or mark in "\n\t":
            self[code] = mark
        elif code < 0x100:
            self[code] = f"\\x{code:02x}"
        else:
            self[code] = f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        return self[code]


_ESCAPES = _Escapes()


def visible(text: str) -> str:
    """Return text that cannot steer or deceive a terminal.

    Characters that are seen, spaces, line ends, tabs and the styles of our own commands stay; everything else (control
    characters, escape sequences, marks of direction and width, tags, lone surrogates) is written out, such as `\\x1b` and
    `\\u202e`. Doing so twice changes nothing.
    """
    if text.isprintable() and text.isascii():
        return text
    parts = _STYLE.split(text)
    parts[::2] = [part.translate(_ESCAPES) for part in parts[::2]]
    return "".join(parts)


class VisibleStream:
    """A text stream that shows what it is given as `visible` does; in all else it is the stream it stands for."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def write(self, text: str) -> int:
        self.inner.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def raw(stream: Any) -> IO[str]:
    """Return the stream behind a `VisibleStream`, for a writer that makes its text visible and moves the cursor itself."""
    while isinstance(stream, VisibleStream):
        stream = stream.inner
    return stream  # type: ignore[no-any-return]


def show_visibly() -> None:
    """Have standard output and error show what is written to them as `visible` does, tracebacks of this process too."""
    if not isinstance(sys.stdout, VisibleStream):  # of a server in the process of its command
        sys.stdout, sys.stderr = VisibleStream(sys.stdout), VisibleStream(sys.stderr)


@contextmanager
def visible_streams() -> Iterator[None]:
    """Do so for the time of the block, also where a live display has put streams of its own before ours."""
    former = sys.stdout, sys.stderr
    show_visibly()
    try:
        yield
    finally:
        sys.stdout, sys.stderr = former


@cache
def output_of_children() -> int:
    """Return the descriptor where child processes write for our standard error: a thread passes on what they write."""
    reader, writer = os.pipe()  # neither is inherited, but as a child's output

    def pass_on() -> None:
        with os.fdopen(reader, encoding="utf-8", errors="backslashreplace", newline="\n") as lines:
            while line := lines.readline(_LINE):
                with suppress(OSError, ValueError):  # our own standard error is gone: children go on
                    sys.stderr.write(visible(line))
                    sys.stderr.flush()

    threading.Thread(target=pass_on, name="output of children", daemon=True).start()
    return writer
