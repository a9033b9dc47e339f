"""What commands print, and where: one way to reach standard output and error, with or without a terminal behind them.

Results go to standard output, messages and progress to standard error. All text passes through `visible`.
"""

from __future__ import annotations

import codecs
import shutil
import sys
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import IO, Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from rock_env.telemetry.shown import raw, visible

__all__ = [
    "FITTED",
    "Finding",
    "Output",
    "WideOption",
    "print_fields",
    "print_table",
    "redraw",
    "stderr",
    "stdout",
    "visible",
]

FITTED: ContextVar[bool] = ContextVar("FITTED", default=False)
"""Whether tables are cut to the terminal's columns: a command that has `--wide` says it (`WideOption`)."""

PIPE_WIDTH = 4000
"""Columns when nobody looks: a line in a pipe is never wrapped or cut, but for tables that are `FITTED`."""
_COLUMNS = 80
"""Those of a fitted table in a pipe."""
_GAP = 2
_LEAST_WORD, _LEAST_TEXT = 24, 48
"""Columns that a long cell keeps as long as there are less important ones to leave out: of one word, of several."""


def _fit(ctx: typer.Context, wide: bool) -> None:
    token = FITTED.set(not wide)
    ctx.call_on_close(lambda: FITTED.reset(token))


WideOption = Annotated[
    bool,
    typer.Option("--wide", help="Whole tables, however wide the terminal.", callback=_fit),
]
"""Of a command that prints tables of many lines; it is for `print_table`, the command need not look."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; `remedy` says what to do unless it is ok."""

    status: Literal["ok", "warn", "fail"]
    found: str
    remedy: str = ""


class _Printed(Console):
    """A console that shows text as `visible` does, and whose own control of the terminal (a live display) works."""

    def print(self, *objects: Any, **settings: Any) -> None:
        # Before the layout, which counts columns.
        super().print(*(visible(each) if isinstance(each, str) else each for each in objects), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


def stdout() -> Console:
    """Return standard output; text is printed as it is, without rich's markup or highlighting, and steers no terminal."""
    return _console(_Printed(file=raw(sys.stdout), markup=False, highlight=False, soft_wrap=True))


def stderr() -> Console:
    """Return standard error, likewise."""
    return _console(_Printed(file=raw(sys.stderr), markup=False, highlight=False, soft_wrap=True))


def _console(console: Console) -> Console:
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def redraw(line: str) -> None:
    """Show a line of standard error, a terminal, in the place of the one before."""
    out = raw(sys.stderr)
    out.write(f"\r\x1b[K{visible(line)}")
    out.flush()


class Output:
    """Where the bytes that a sandbox's process wrote go: raw to a pipe or file, as `visible` shows them to a terminal."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._decoder = None
        if stream.isatty():
            self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(self, data: bytes, *, last: bool = False) -> None:
        """Write at once; `last` also what may be half a character."""
        if self._decoder is None:
            self._stream.buffer.write(data)  # type: ignore[attr-defined]
        else:
            self._stream.write(visible(self._decoder.decode(data, last)))
        self._stream.flush()


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, least: Sequence[str] = ()) -> None:
    """Print left-aligned columns under their heads.

    A command that has `--wide` prints, without it, no line that is wider than the terminal (80 columns in a pipe): first the
    columns `least` are left out as long as it takes, then the widest cells are cut, a word in its middle.
    """
    note = ""
    if FITTED.get():
        heads, rows, note = _fitted(heads, rows, least)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    stdout().print(table, soft_wrap=False)
    if note:
        stdout().print(note)


def _fitted(
    heads: Sequence[str], rows: Sequence[Sequence[str]], least: Sequence[str]
) -> tuple[list[str], list[list[str]], str]:
    """Return a table that has no wider lines than the terminal, and what to say of it where it is not whole."""
    columns = shutil.get_terminal_size((_COLUMNS, 24)).columns
    cells = [[" ".join(Text.from_ansi(visible(cell)).plain.split("\n")) for cell in row] for row in rows]
    table = {head: [row[n] for row in cells] for n, head in enumerate(heads)}
    widths = {head: max(map(cell_len, (head, *column))) for head, column in table.items()}
    needed = {
        head: min(widths[head], _LEAST_TEXT if any(" " in cell for cell in column) else _LEAST_WORD)
        for head, column in table.items()
    }
    left_out = []
    for head in least:
        if sum(needed.values()) + _GAP * (len(needed) - 1) <= columns:
            break
        left_out.append(head)
        del needed[head], table[head]
    room = max(columns - _GAP * (len(table) - 1), len(table))
    shown = {head: min(widths[head], room) for head in table}
    while sum(shown.values()) > room:
        shown[max(shown, key=lambda head: shown[head])] -= 1
    cut = any(shown[head] < widths[head] for head in table)
    also = f", also: {', '.join(left_out)}" if left_out else ""
    note = f"(--wide shows everything{also})" if cut or left_out else ""
    kept = [[_cut(cell, shown[head]) for cell in column] for head, column in table.items()]
    return (
        [_cut(head, shown[head]) for head in table],
        [list(row) for row in zip(*kept, strict=True)],
        note,
    )


def _cut(text: str, width: int) -> str:
    """Return a text of at most `width` columns: several words without their end, one word without its middle."""
    if cell_len(text) <= width:
        return text
    end = 0 if " " in text else (width - 1) // 2
    begin = set_cell_size(text, width - 1 - end).rstrip()
    return f"{begin}…{set_cell_size(text[::-1], end)[::-1]}"


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
