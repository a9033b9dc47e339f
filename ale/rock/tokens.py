"""`ale rock token`: the token file of a ROCK server.

A new token goes to standard output, alone, so that it can be piped; the rest to standard error.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ale.terminal import print_table
from rock_env.errors import InvalidArgument
from rock_env.security.auth import new_token, utc
from rock_env.security.token_file import add_token, read_tokens, revoke_token

__all__ = ["token_app"]

token_app = typer.Typer(
    no_args_is_help=True,
    help="Make, list and revoke API tokens. A running server takes the change at its next call.",
)

TokensOption = Annotated[Path, typer.Option("--tokens", metavar="FILE", help="The server's token file.")]
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_S = 3650 * 86400.0


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
    now = time.time()
    expires_at = None if expires_in is None else int(now) + _seconds(expires_in)
    token, text = new_token(tenant, scopes, expires_at=expires_at, now=now)
    add_token(tokens, token)
    until = "does not expire" if token.expires_at is None else f"expires at {utc(token.expires_at)}"
    held = ", ".join(sorted(token.scopes))
    _say(f"Token {token.id} of tenant {tenant} ({held}) {until}. Keep it: it is shown this once.")
    sys.stdout.write(f"{text}\n")


@token_app.command("list")
def token_list(*, tokens: TokensOption) -> None:
    """List the tokens of a file, without their secrets."""
    now = time.time()
    rows = []
    for token in sorted(
        read_tokens(tokens).values(), key=lambda token: (token.tenant, token.created_at, token.id)
    ):
        expiry = "never"
        if token.expires_at is not None:
            expiry = utc(token.expires_at) + (" (expired)" if token.expires_at <= now else "")
        rows.append([token.id, token.tenant, ",".join(sorted(token.scopes)), utc(token.created_at), expiry])
    print_table(["id", "tenant", "scopes", "created", "expires"], rows)


@token_app.command("revoke")
def token_revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="The twelve digits after rock_.")],
    *,
    tokens: TokensOption,
) -> None:
    """Take a token out of the file; calls that run already end by themselves."""
    token = revoke_token(tokens, token_id)
    _say(f"Token {token.id} of tenant {token.tenant} is revoked.")


def _seconds(text: str) -> float:
    """Return the seconds of a time such as 30d. Raise `InvalidArgument`."""
    matched = re.fullmatch(r"([0-9]{1,9})([smhd])", text, re.ASCII)
    seconds = float(int(matched[1]) * _UNIT_S[matched[2]]) if matched else 0.0
    if not 0 < seconds <= _LONGEST_S:
        raise InvalidArgument(
            f"bad --expires-in {text!r}: expected a number and s, m, h or d, such as 30d, at most 3650d."
        )
    return seconds


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
