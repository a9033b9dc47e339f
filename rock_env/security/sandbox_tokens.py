"""Tokens for one sandbox alone, and for one port of it: made, recognised, and what the present call may touch.

A sandbox's record holds the hash of each of its tokens; their text is known to whoever asked for it and to nobody else.
They end with the box.

A token is `rock_<sandbox id>_<secret>`, the secret 256 random bits (a port's 160), as in `rock_env.security.auth`.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from rock_env.errors import PermissionDenied
from rock_env.lifecycle import SandboxToken

__all__ = [
    "KEPT",
    "Limit",
    "check_port",
    "check_sandbox",
    "current_limit",
    "from_port_label",
    "limit_to",
    "new_sandbox_token",
    "parse",
    "port_label",
    "recognise",
]

_TEXT = re.compile(r"bearer rock_(sb-[a-z0-9-]{1,64})_([0-9a-f]{40}|[0-9a-f]{64})", re.ASCII | re.IGNORECASE)
_LABEL = re.compile(r"([0-9]{1,5})-([0-9a-f]{16})-([0-9a-f]{40})", re.ASCII)
_PORT_SECRET_BYTES = 20
"""160 bits: with port and id it still fits the 63 characters of a name in DNS."""
KEPT = 64
"""Tokens of one sandbox that are valid at once; the oldest goes first."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What the present call may touch: one sandbox, and of that one port, or (0) everything inside."""

    sandbox_id: str
    port: int = 0


def new_sandbox_token(sandbox_id: str, *, port: int = 0) -> tuple[SandboxToken, str]:
    """Make a token; return what to keep of it and the only copy of its text."""
    secret = secrets.token_hex(_PORT_SECRET_BYTES if port else 32)
    return SandboxToken(_hashed(secret), port), f"rock_{sandbox_id}_{secret}"


def port_label(token: str, port: int) -> str:
    """Return what stands for a port's token in a URL, as a part of its path or its host."""
    _, sandbox_id, secret = token.split("_")
    return f"{port}-{sandbox_id.removeprefix('sb-')}-{secret}"


def from_port_label(label: str) -> tuple[str, int, str] | None:
    """Return sandbox id, port and token of such a label; None for what is none."""
    matched = _LABEL.fullmatch(label)
    if matched is None:
        return None
    return f"sb-{matched[2]}", int(matched[1]), f"rock_sb-{matched[2]}_{matched[3]}"


def parse(headers: Sequence[str | bytes]) -> tuple[str, str] | None:
    """Return sandbox id and secret of an `authorization` header that holds a sandbox's token; else None."""
    header = headers[0] if len(headers) == 1 else b""
    matched = _TEXT.fullmatch(header) if isinstance(header, str) else None
    return (matched[1], matched[2]) if matched else None


def recognise(secret: str, known: Iterable[SandboxToken]) -> SandboxToken | None:
    """Return the token with this secret. It takes equally long whichever it is."""
    found, hashed = None, _hashed(secret)
    for token in known:
        if hmac.compare_digest(token.secret_sha256, hashed):
            found = token
    return found


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


# -- the limit of the present call

_limit: ContextVar[Limit | None] = ContextVar("rock_limit", default=None)


def limit_to(limit: Limit | None) -> None:
    """Let the rest of the present task touch only what `limit` allows; None: all that is its tenant's."""
    _limit.set(limit)


def current_limit() -> Limit | None:
    """Return what alone the present call may touch; None: all that is its tenant's."""
    return _limit.get()


def check_sandbox(sandbox_id: str) -> None:
    """Raise `PermissionDenied` where the present call is limited to another sandbox."""
    limit = _limit.get()
    if limit is not None and limit.sandbox_id != sandbox_id:
        raise PermissionDenied(
            f"the token of sandbox {limit.sandbox_id} gives no access to sandbox {sandbox_id!r}."
        )


def check_port(port: int) -> None:
    """Raise `PermissionDenied` where the present call is limited to another port."""
    limit = _limit.get()
    if limit is not None and limit.port not in (0, port):
        raise PermissionDenied(f"this token is for port {limit.port} of its sandbox alone, not {port}.")
