"""`ale rock serve`, `status` and `drain`: a ROCK server in the foreground, a look at one, and its end.

What a server does is in `rock_env.server`; here it gets its log level and its words.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from ale.rock.reach import ADDRESS_IN_USE, server_in_use
from ale.terminal import stdout
from ale.waiting import awaited, waiting_for
from rock_env.client.admin import AdminClient, Drained
from rock_env.errors import Unavailable
from rock_env.platforms import check_hosting
from rock_env.server.app import serve
from rock_env.server.options import LogLevel, ServerOptions
from rock_env.telemetry.setup import set_up_telemetry

__all__ = ["drain", "serve_rock", "status"]

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_DRAIN_S = 30.0
"""Of a server in the foreground; an embedded one ends with its owner."""


def _served() -> Iterator[inspect.Parameter]:
    """Yield an option of the command line for each of the server's."""
    hints = get_type_hints(ServerOptions)
    for each in fields(ServerOptions):
        how = dict(each.metadata)
        if how["own"]:
            continue
        kind, default = hints[each.name], _DRAIN_S if each.name == "drain_s" else each.default
        if how["metavar"] in ("FILE", "DIR"):
            kind, default = Path | None, None
        elif get_origin(kind) is Sequence:
            kind, default = list[str] | None, None
        option = typer.Option(
            f"--{each.name.replace('_', '-')}",
            metavar=how["metavar"] or None,
            help=how["help"],
            min=how["least"],
            show_default="this machine's name" if each.name == "node" else True,
        )
        yield inspect.Parameter(each.name, _KEYWORD, default=default, annotation=Annotated[kind, option])
    level = Annotated[LogLevel, typer.Option("--log-level", help="To standard error.")]
    yield inspect.Parameter("log_level", _KEYWORD, default="WARNING", annotation=level)


def serve_rock(*, log_level: LogLevel, **given: Any) -> None:
    """Run a ROCK server until Ctrl-C; it prints its address on one line when it is ready.

    Ctrl-C refuses new calls and lets running ones finish; a second one ends them.
    """
    values: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if value is not None
    }
    options = ServerOptions(**values)
    set_up_telemetry(log_level, options.log_format)
    check_hosting(sys.platform)
    with ExitStack() as starting:
        starting.enter_context(waiting_for("the server to be ready"))
        asyncio.run(serve(options, ready=starting.close))


_options = list(_served())
serve_rock.__signature__ = inspect.Signature(_options)  # type: ignore[attr-defined]  # what Typer reads
serve_rock.__annotations__ = {each.name: each.annotation for each in _options}


def status(
    address: Annotated[
        str,
        typer.Argument(
            metavar="ADDRESS|CONTEXT",
            envvar="ROCK_ADDRESS",
            help="As the server printed it.",
            show_default="the context in use, or 127.0.0.1:8120",
            callback=server_in_use,
        ),
    ] = ADDRESS_IN_USE,
) -> None:
    """Say whether a server is up and how loaded it is.

    The load needs a token with the scope admin. Token, CA and client certificate come from ROCK_TOKEN, ROCK_CA,
    ROCK_CERT and ROCK_KEY.
    """
    awaited(_status(address), f"the ROCK server at {address}")


def drain(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="As the server printed it.")],
    *,
    within: Annotated[
        float | None,
        typer.Option("--within", metavar="SECONDS", help="Then end what still runs; default: its --drain-s."),
    ] = None,
) -> None:
    """Make a server stop gracefully: other replicas get its durable sandboxes, running calls may finish.

    Needs a token with the scope admin.
    """
    drained = awaited(_drain(address, within), f"the ROCK server at {address}")
    stdout().print(
        f"{address} is stopping; sandboxes: {drained.durable} live on, {drained.ending} end with it"
    )


async def _drain(address: str, within_s: float | None) -> Drained:
    async with AdminClient(address) as admin:
        return await admin.drain(within_s=within_s)


async def _status(address: str) -> None:
    async with AdminClient(address) as admin:
        if not await admin.serving():
            raise Unavailable(f"the ROCK server at {address} is stopping and takes no new calls.")
        stdout().print(f"{address} is serving")  # said before the next question, which may be refused
        load = await admin.capacity()
    stdout().print(
        f"up {load.uptime_s:.0f} s; environments: {load.envs_in_workers} in {load.workers} of {load.max_workers} "
        f"workers, {load.envs_in_sandboxes} in sandboxes"
    )
