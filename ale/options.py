"""Options that several groups of commands take alike."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "PLACE",
    "SETTINGS",
    "BackendOption",
    "EnvArgs",
    "FreezeOption",
    "RockOption",
]

PLACE = "How it runs"
"""The panel of `--help` for what says where and how. Options without a panel, the everyday ones, come first."""
SETTINGS = "Every other setting"


EnvArgs = Annotated[
    list[str] | None,
    typer.Option(
        "--env-arg",
        metavar="KEY=VALUE",
        help="An argument of the environment (ale env show).",
        rich_help_panel=SETTINGS,
    ),
]
RockOption = Annotated[
    str,
    typer.Option(
        "--rock",
        metavar="ADDRESS|CONTEXT",
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
