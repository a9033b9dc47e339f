"""`ale console`: serve the page on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import secrets
from typing import Annotated

import typer

from agent_runtime.gateway.http_server import Limits, serving
from ale import completion
from ale.console.app import application
from ale.console.catalog import Catalog
from ale.console.guard import Door, is_loopback
from ale.errors import RecordError
from ale.terminal import stdout

__all__ = ["console"]

_LIMITS = Limits(body_bytes=0, head_bytes=16 << 10, connections=128)


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
    token: Annotated[
        bool, typer.Option("--token", help="Want a token on this machine, too, where others have accounts.")
    ] = False,
) -> None:
    """Look at runs, rollouts and tokens on a page of this machine. It only reads."""
    key = secrets.token_urlsafe(24) if token or not is_loopback(host) else ""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        asyncio.run(_serve(Door(application(Catalog(places or ())), host, key), address))
    except OSError as error:
        raise RecordError(str(error)) from error


async def _serve(door: Door, address: str) -> None:
    async with serving(door, address, limits=_LIMITS) as url:
        stdout().print(f"{url}/{f'?token={door.token}' if door.token else ''}")
        stdout().print("Ctrl-C ends it.")
        await asyncio.Event().wait()
