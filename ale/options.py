"""Options that several groups of commands take alike."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "ADDRESS_IN_USE",
    "PLACE",
    "BackendOption",
    "FreezeOption",
    "RockOption",
    "ServerOption",
    "server_in_use",
]

PLACE = "How it runs"
"""The panel of `--help` for what says where and how."""

ADDRESS_IN_USE = ""
"""What `server_in_use` turns into a server."""


def server_in_use(given: str) -> str:
    """Return the server that is named, else that of the context in use, else this machine's."""
    if given:
        return given
    from rock_env.client.installations import address_in_use

    return address_in_use()


ServerOption = Annotated[
    str,
    typer.Option(
        "--rock",
        metavar="ADDRESS|CONTEXT",
        envvar="ROCK_ADDRESS",
        help="The server, as it printed it.",
        show_default="the context in use, or 127.0.0.1:8120",
        callback=server_in_use,
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
