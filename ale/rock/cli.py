"""The `ale rock` commands: run a ROCK server, look at one, and manage the tokens it takes.

Added to the command line by `ale/cli.py`. As there, nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from ale.options import ADDRESS_IN_USE, server_in_use
from ale.rock.box_cli import add_box_commands
from ale.rock.context_cli import context_app
from ale.rock.images import image_app
from ale.rock.places import pool_app, quota_app
from ale.rock.server_image_cli import add_server_image_commands
from rock_env.server.options import LogLevel, ServerOptions

__all__ = ["rock_app"]

rock_app = typer.Typer(no_args_is_help=True, help="Run a ROCK server, look at one, use its sandboxes.")
token_app = typer.Typer(
    no_args_is_help=True,
    help="Make, list and revoke API tokens. A running server takes the change at its next call.",
)
rock_app.add_typer(token_app, name="token")
add_box_commands(rock_app)
add_server_image_commands(image_app)
rock_app.add_typer(image_app, name="image")
rock_app.add_typer(context_app, name="context")
rock_app.add_typer(quota_app, name="quota")
rock_app.add_typer(pool_app, name="pool")

_KEYWORD = inspect.Parameter.KEYWORD_ONLY

TokensOption = Annotated[Path, typer.Option("--tokens", metavar="FILE", help="The server's token file.")]


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


def _serve(*, log_level: LogLevel, **given: Any) -> None:
    """Run a ROCK server until Ctrl-C; it prints its address on one line when it is ready.

    Ctrl-C refuses new calls and lets running ones finish; a second one ends them.
    """
    from ale.rock.server import serve_command

    values: dict[str, Any] = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in given.items()
        if value is not None
    }
    serve_command(ServerOptions(**values), log_level)


_options = list(_served())
_serve.__signature__ = inspect.Signature(_options)  # type: ignore[attr-defined]  # what Typer reads
_serve.__annotations__ = {each.name: each.annotation for each in _options}
rock_app.command("serve")(_serve)


@rock_app.command("status")
def rock_status(
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
    from ale.rock.server import status_command

    status_command(address)


@rock_app.command("drain")
def rock_drain(
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
    from ale.rock.server import drain_command

    drain_command(address, within_s=within)


@token_app.command("create")
def token_create(
    *,
    tokens: TokensOption,
    tenant: Annotated[
        str, typer.Option("--tenant", metavar="NAME", help="Whose it is; tenants do not see each other.")
    ],
    scopes: Annotated[
        list[str],
        typer.Option("--scope", help="env, sandbox or admin; none includes another. Repeat for several."),
    ],
    expires_in: Annotated[
        str | None,
        typer.Option("--expires-in", metavar="TIME", help="Such as 30d, 12h, 90m; none never expires."),
    ] = None,
) -> None:
    """Make a token and print it: this is the only time it can be seen.

    To rotate one, create its successor, hand it out, then revoke it.
    """
    from ale.rock.tokens import create_command

    create_command(tokens, tenant=tenant, scopes=scopes, expires_in=expires_in)


@token_app.command("list")
def token_list(*, tokens: TokensOption) -> None:
    """List the tokens of a file, without their secrets."""
    from ale.rock.tokens import list_command

    list_command(tokens)


@token_app.command("revoke")
def token_revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The twelve digits after rock_.")],
    *,
    tokens: TokensOption,
) -> None:
    """Take a token out of the file; calls that run already end by themselves."""
    from ale.rock.tokens import revoke_command

    revoke_command(tokens, token_id)
