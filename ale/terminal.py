"""What commands print, and where: one way to reach standard output, with or without a terminal behind it.

Called by every command that prints a result. Messages and progress go to standard error instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["Finding", "print_table", "stdout"]

PIPE_WIDTH = 4000
"""Columns when nobody looks: a line in a pipe is never wrapped or cut."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found; `remedy` says what to do unless it is ok."""

    status: Literal["ok", "warn", "fail"]
    found: str
    remedy: str = ""


def stdout() -> Console:
    """Return standard output; text is printed as it is, without rich's markup or highlighting."""
    console = Console(markup=False, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print left-aligned columns under their heads."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    stdout().print(table, soft_wrap=False)
