"""Options that several groups of commands take alike."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["PLACE", "BackendOption", "FreezeOption", "RockOption"]

PLACE = "How it runs"
"""The panel of `--help` for what says where and how."""

RockOption = Annotated[
    str,
    typer.Option(
        "--rock",
        metavar="ADDRESS",
        help="A running ROCK server; none starts an embedded one.",
        rich_help_panel=PLACE,
    ),
]
FreezeOption = Annotated[
    int,
    typer.Option(
        "--freeze",
        metavar="N",
        min=0,
        help="Leave the sandboxes of so many that are not passed open, for ale rock shell; needs --rock.",
        rich_help_panel=PLACE,
    ),
]
BackendOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        metavar="NAME[:KEY=VALUE,…]",
        help="Host sandboxes of the embedded server on it.",
        rich_help_panel=PLACE,
    ),
]
