"""`ale console`: serve the page on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Annotated

import typer

from agent_runtime.gateway.http_server import Limits, serving
from ale import completion
from ale.console.app import application
from ale.console.bundle import write_bundle
from ale.console.catalog import Catalog
from ale.console.guard import Door, is_loopback
from ale.console.rock import Rock
from ale.errors import RecordError
from ale.terminal import stdout

__all__ = ["LIMITS", "console"]

LIMITS = Limits(body_bytes=0, head_bytes=16 << 10, connections=128)

RockOption = Annotated[
    str,
    typer.Option(
        metavar="CONTEXT|ADDRESS",
        help="Also show a ROCK server's sandboxes, with that context's token; then always with --token.",
        show_default=False,
    ),
]
"""Who may ask the console asks the server with the token of who started it: hence --token."""


def console(
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|FOLDER]...",
            help="Runs, or folders of runs; none is runs/.",
            autocompletion=completion.runs,
        ),
    ] = None,
    *,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own wants a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free one.")] = 8399,
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html", help="Serve nothing: write one run as a file that opens without a server."
        ),
    ] = None,
    rollouts: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID|KEY=VALUE",
            help="Which rollouts the file holds: ids, task=train/7*, step=40, outcome=unsolved.",
        ),
    ] = None,
    rock: RockOption = "",
    token: Annotated[
        bool, typer.Option("--token", help="Want a token on this machine, too, where others have accounts.")
    ] = False,
) -> None:
    """Look at runs, rollouts and tokens on a page of this machine, or write them as one file. It only reads."""
    if bundle and rock:
        raise RecordError(
            "--bundle writes a run: got --rock, too, of which a file can hold nothing. Leave one out."
        )
    if bundle:
        if not places or len(places) != 1:
            raise RecordError(
                f"--bundle writes one run: got {len(places or ())}, expected its name or folder."
            )
        held, secrets_in = write_bundle(places[0], bundle, rollouts or ())
        stdout().print(f"{held} rollouts of {places[0]} in {bundle}, which a browser opens by itself")
        if secrets_in:
            stdout().print(
                f"{secrets_in} of them held what looks like a secret: it and their token ids were taken out"
            )
        return
    if rollouts:
        raise RecordError(
            "--rollouts chooses what --bundle writes: got no --bundle, expected --bundle FILE.html."
        )
    key = secrets.token_urlsafe(24) if token or rock or not is_loopback(host) else ""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        app = application(Catalog(places or ()), Rock(rock) if rock else None)
        asyncio.run(_serve(Door(app, host, key), address))
    except OSError as error:
        raise RecordError(str(error)) from error


async def _serve(door: Door, address: str) -> None:
    async with serving(door, address, limits=LIMITS) as url:
        stdout().print(f"{url}/{f'?token={door.token}' if door.token else ''}")
        stdout().print("Ctrl-C ends it.")
        await asyncio.Event().wait()
