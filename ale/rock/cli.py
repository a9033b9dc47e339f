"""The `ale rock` commands: run a ROCK server, look at one, and manage the tokens it takes.

Added to the command line by `ale/cli.py`. As there, nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Annotated, Literal

import typer

from ale.rock.box_cli import add_box_commands
from ale.rock.images import image_app
from ale.rock.places import pool_app, quota_app

__all__ = ["rock_app"]

rock_app = typer.Typer(no_args_is_help=True, help="Run a ROCK server, look at one, use its sandboxes.")
token_app = typer.Typer(
    no_args_is_help=True,
    help="Make, list and revoke API tokens. A running server takes the change at its next call.",
)
rock_app.add_typer(token_app, name="token")
add_box_commands(rock_app)
rock_app.add_typer(image_app, name="image")
rock_app.add_typer(quota_app, name="quota")
rock_app.add_typer(pool_app, name="pool")

TokensOption = Annotated[Path, typer.Option("--tokens", metavar="FILE", help="The server's token file.")]


@rock_app.command("serve")
def rock_serve(
    *,
    listen: Annotated[
        str, typer.Option("--listen", metavar="ADDRESS", help="host:port (port 0: any) or unix:///path.")
    ] = "127.0.0.1:8120",
    http: Annotated[
        str,
        typer.Option("--http", metavar="HOST:PORT", help="Also serve REST here; its URL is printed second."),
    ] = "",
    http_url: Annotated[
        str, typer.Option("--http-url", metavar="URL", help="Where clients reach --http, if elsewhere.")
    ] = "",
    tokens: Annotated[
        Path | None, typer.Option("--tokens", metavar="FILE", help="Who may call (ale rock token create).")
    ] = None,
    cert: Annotated[
        Path | None, typer.Option("--cert", metavar="FILE", help="TLS: the certificate chain, PEM.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="TLS: its key without a passphrase, PEM.")
    ] = None,
    client_ca: Annotated[
        Path | None,
        typer.Option("--client-ca", metavar="FILE", help="mTLS: only clients this CA signed may connect."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Neither tokens nor TLS; loopback addresses only.")
    ] = False,
    workers: Annotated[
        int, typer.Option("--workers", min=0, help="Env-host processes; 0 is one per CPU.")
    ] = 0,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="MODULE:OBJECT", help="Also offer this EnvSpec (or FILE.py:OBJECT)."),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            metavar="NAME=PATH",
            help="A file or folder that arguments of environments may name, as NAME; else callers may name none.",
        ),
    ] = None,
    most_environments: Annotated[
        int, typer.Option("--most-environments", min=1, help="Environments of one tenant at once.")
    ] = 10_000,
    worker_memory_gib: Annotated[
        float, typer.Option("--worker-memory-gib", min=0.1, help="What one env-host process may allocate.")
    ] = 4.0,
    isolation: Annotated[
        Literal["auto", "namespaces", "none"],
        typer.Option(
            "--isolation",
            help="Of sandboxes. auto: namespaces, or none where they do not work and there are no --tokens.",
        ),
    ] = "auto",
    state: Annotated[
        Path | None,
        typer.Option(
            "--state", metavar="DIR", help="Records, boxes and snapshots: sandboxes then outlive the server."
        ),
    ] = None,
    store: Annotated[
        str,
        typer.Option(
            "--store",
            metavar="FILE|URL",
            help="SQLite file for records, or postgresql://… for several servers; else in --state, or in memory.",
        ),
    ] = "",
    shelf: Annotated[
        Path | None,
        typer.Option(
            "--shelf", metavar="DIR", help="Every sandbox sees this folder, read-only (ale agent install)."
        ),
    ] = None,
    node: Annotated[
        str,
        typer.Option(
            "--node",
            show_default="this machine's name",
            help="Servers that share a store take over each other's boxes on one node.",
        ),
    ] = "",
    replica_lease_s: Annotated[
        float,
        typer.Option("--replica-lease-s", help="Without a sign of life for so long, others take over."),
    ] = 10.0,
    quotas: Annotated[
        Path | None,
        typer.Option(
            "--quotas", metavar="FILE", help="TOML: what the machine holds, what a tenant may take."
        ),
    ] = None,
    build_network: Annotated[
        Literal["default", "none"],
        typer.Option("--build-network", help="What an image's RUN steps may reach."),
    ] = "default",
    idle_timeout_s: Annotated[
        float, typer.Option("--idle-timeout-s", min=0.1, help="Close what nobody used for so long.")
    ] = 1800.0,
    drain_s: Annotated[
        float,
        typer.Option("--drain-s", min=0.0, help="How long running calls may take to finish after Ctrl-C."),
    ] = 30.0,
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"], typer.Option("--log-level", help="To standard error.")
    ] = "WARNING",
    log_format: Annotated[
        Literal["text", "json"], typer.Option("--log-format", help="Of the lines on standard error.")
    ] = "text",
    metrics: Annotated[
        str,
        typer.Option("--metrics", metavar="HOST:PORT", help="Answer GET /metrics there, for Prometheus."),
    ] = "",
) -> None:
    """Run a ROCK server until Ctrl-C; it prints its address on one line when it is ready.

    Ctrl-C refuses new calls and lets running ones finish; a second one ends them.
    """
    from ale.rock.server import serve_command
    from rock_env.server.options import ServerOptions

    serve_command(
        ServerOptions(
            listen=listen,
            http=http,
            http_url=http_url,
            tokens=_text(tokens),
            insecure=insecure,
            cert=_text(cert),
            key=_text(key),
            client_ca=_text(client_ca),
            workers=workers,
            env=tuple(env or ()),
            data=tuple(data or ()),
            worker_memory_gib=worker_memory_gib,
            most_environments=most_environments,
            isolation=isolation,
            state=_text(state),
            store=store,
            shelf=_text(shelf),
            node=node or platform.node(),
            replica_lease_s=replica_lease_s,
            quotas=_text(quotas),
            build_network=build_network,
            idle_timeout_s=idle_timeout_s,
            drain_s=drain_s,
            log_format=log_format,
            metrics=metrics,
        ),
        log_level,
    )


@rock_app.command("status")
def rock_status(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", envvar="ROCK_ADDRESS", help="As the server printed it.")
    ] = "127.0.0.1:8120",
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


def _text(path: Path | None) -> str:
    return "" if path is None else str(path)
