"""`ale rock token`: the token file of a ROCK server.

A new token goes to standard output, alone, so that it can be piped; the rest to standard error.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ale.terminal import print_table
from rock_env.errors import InvalidArgument
from rock_env.security.auth import new_token, utc
from rock_env.security.token_file import add_token, read_tokens, revoke_token

__all__ = ["create_command", "list_command", "revoke_command"]

_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_S = 3650 * 86400.0


def create_command(path: Path, *, tenant: str, scopes: Sequence[str], expires_in: str | None) -> None:
    """Make a token and print it. Raise `RockError`."""
    now = time.time()
    expires_at = None if expires_in is None else int(now) + _seconds(expires_in)
    token, text = new_token(tenant, scopes, expires_at=expires_at, now=now)
    add_token(path, token)
    until = "does not expire" if token.expires_at is None else f"expires at {utc(token.expires_at)}"
    held = ", ".join(sorted(token.scopes))
    _say(f"Token {token.id} of tenant {tenant} ({held}) {until}. Keep it: it is shown this once.")
    sys.stdout.write(f"{text}\n")


def list_command(path: Path) -> None:
    """Print the tokens of the file. Raise `RockError`."""
    now = time.time()
    rows = []
    for token in sorted(
        read_tokens(path).values(), key=lambda token: (token.tenant, token.created_at, token.id)
    ):
        expiry = "never"
        if token.expires_at is not None:
            expiry = utc(token.expires_at) + (" (expired)" if token.expires_at <= now else "")
        rows.append([token.id, token.tenant, ",".join(sorted(token.scopes)), utc(token.created_at), expiry])
    print_table(["id", "tenant", "scopes", "created", "expires"], rows)


def revoke_command(path: Path, token_id: str) -> None:
    """Revoke a token. Raise `RockError`."""
    token = revoke_token(path, token_id)
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
