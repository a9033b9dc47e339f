"""What commands print, and where: one way to reach standard output, with or without a terminal behind it.

Messages and progress go to standard error instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["Finding", "print_fields", "print_table", "stdout", "visible"]

_CONTROLS = re.compile("(\\x1b\\[[0-9;]*m)|[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f]")

PIPE_WIDTH = 4000
"""Columns when nobody looks: a line in a pipe is never wrapped or cut."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; `remedy` says what to do unless it is ok."""

    status: Literal["ok", "warn", "fail"]
    found: str
    remedy: str = ""


def visible(text: str) -> str:
    """Return text that cannot steer a terminal: control characters are written out, but for line ends, tabs and colours.

    What models, environments and strangers' records say is printed, and a terminal obeys what it is told.
    """
    return _CONTROLS.sub(lambda found: found[1] or f"\\x{ord(found[0]):02x}", text)


class _Printed(Console):
    """A console that shows what would steer a terminal."""

    def print(self, *objects: Any, **settings: Any) -> None:
        super().print(*(visible(each) if isinstance(each, str) else each for each in objects), **settings)


def stdout() -> Console:
    """Return standard output; text is printed as it is, without rich's markup or highlighting, and steers no terminal."""
    console = _Printed(markup=False, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print left-aligned columns under their heads."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    stdout().print(table, soft_wrap=False)


def print_fields(head: str, model: type[BaseModel]) -> None:
    """Print what a plugin lets its user set: name, type, default and meaning of every field of its model."""
    fields = model.model_fields.items()
    rows = [
        (name, _type(field.annotation), _default(field), " ".join((field.description or "").split()))
        for name, field in fields
    ]
    if rows:
        print_table((head, "type", "default", "meaning"), rows)
    else:
        stdout().print(f"It takes no {head}s.")


def _type(annotation: Any) -> str:
    """Return a type as its user writes values of it: `a|b` for a choice, the bare name of a class."""
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    if get_origin(annotation) is Literal:
        return "|".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (Union, UnionType):
        return "|".join(_type(part) for part in get_args(annotation) if part is not NoneType)
    return str(annotation).replace("typing.", "")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "(required)"
    value = field.get_default(call_default_factory=False)
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
