"""Who calls: API tokens, the file that holds them, and the tenant of the present call.

It knows no transport, logs no secret and keeps none: the file holds a hash of each.

A token is `rock_<id>_<secret>`. The secret is 256 random bits, so its plain SHA-256 is as hard to invert as the
secret is to guess; the slow, salted hashes made for passwords would buy nothing and cost time on every call.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from rock_env.errors import InvalidArgument, PermissionDenied, Unauthenticated, nearest

__all__ = [
    "Caller",
    "Scope",
    "Token",
    "act_for",
    "acting_for",
    "authenticate",
    "check_scopes",
    "check_tenant",
    "current_tenant",
    "new_token",
    "utc",
]

_TOKEN = re.compile(r"rock_([0-9a-f]{12})_([0-9a-f]{64})", re.ASCII)
_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}", re.ASCII)
_NOBODY = bytes(32)
"""What an unknown id is compared with, so that it takes as long as a wrong secret."""


class Scope(StrEnum):
    """What a token may call. None implies another."""

    ENV = "env"
    """EnvService: make, reset, step, evaluate, branch and close environments."""
    SANDBOX = "sandbox"
    """SandboxService: create boxes, run commands and move files in them; RegistryService: the images they start from."""
    ADMIN = "admin"
    """AdminService and reflection: the whole server's load, census, drain, quotas and pools, and its interface."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is known of a token; never its secret. Times are in seconds since the epoch."""

    id: str
    tenant: str
    scopes: frozenset[Scope]
    secret_sha256: bytes
    created_at: float
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller."""

    token_id: str
    tenant: str
    scopes: frozenset[Scope]

    def need(self, scope: Scope) -> None:
        """Raise `PermissionDenied` unless the caller holds `scope`."""
        if scope not in self.scopes:
            held = ", ".join(sorted(self.scopes))
            raise PermissionDenied(
                f"token {self.token_id} may not call this: it holds the scopes {held}, and this needs {scope}. "
                "Ask the server's operator for a token with that scope."
            )


def check_tenant(tenant: str) -> str:
    """Return the tenant's name. Raise `InvalidArgument` if it is not one."""
    if not _TENANT.fullmatch(tenant):
        raise InvalidArgument(
            f"bad tenant name {tenant!r}: expected 1 to 63 of a-z, 0-9, '.', '_' and '-', a letter or digit first."
        )
    return tenant


def check_scopes(names: Sequence[str]) -> frozenset[Scope]:
    """Return the scopes of these names. Raise `InvalidArgument` for none, `UnknownName` for an unknown one."""
    if not names:
        raise InvalidArgument(f"a token needs at least one scope: {', '.join(Scope)}.")
    known = [scope.value for scope in Scope]
    for name in names:
        if name not in known:
            raise nearest("scope", name, known)
    return frozenset(map(Scope, names))


def new_token(
    tenant: str, scopes: Sequence[str], *, expires_at: float | None = None, now: float | None = None
) -> tuple[Token, str]:
    """Make a token; return its record and the only copy of its text. Raise `InvalidArgument`."""
    now = time.time() if now is None else now
    if expires_at is not None and not now < expires_at:
        raise InvalidArgument(f"a token must expire in the future: got {utc(expires_at)}.")
    token_id, secret = secrets.token_hex(6), secrets.token_hex(32)
    token = Token(
        token_id, check_tenant(tenant), check_scopes(scopes), _hashed(secret), float(int(now)), expires_at
    )
    return token, f"rock_{token_id}_{secret}"


def authenticate(
    headers: Sequence[str | bytes], tokens: Mapping[str, Token], *, now: float | None = None
) -> Caller:
    """Return who sent these `authorization` headers. Raise `Unauthenticated`; no message repeats what was sent."""
    if not headers:
        raise Unauthenticated(
            "no API token: this server needs one. Pass token=... or set ROCK_TOKEN; its operator makes tokens "
            "with `ale rock token create`."
        )
    matched = _TOKEN.fullmatch(_bearer(headers))
    if matched is None:
        raise Unauthenticated(
            "malformed API token: expected rock_<12 hex digits>_<64 hex digits>. Was it copied in full?"
        )
    token = tokens.get(matched[1])
    same = hmac.compare_digest(_hashed(matched[2]), token.secret_sha256 if token else _NOBODY)
    if token is None or not same:
        raise Unauthenticated(
            f"API token {matched[1]} is not valid: unknown to this server, revoked, or its secret is wrong. "
            "Ask the server's operator for a new one."
        )
    if token.expires_at is not None and token.expires_at <= (time.time() if now is None else now):
        raise Unauthenticated(
            f"API token {token.id} expired at {utc(token.expires_at)}. Ask the server's operator for a new one."
        )
    return Caller(token.id, token.tenant, token.scopes)


def _bearer(headers: Sequence[str | bytes]) -> str:
    header = headers[0]
    if len(headers) > 1 or not isinstance(header, str):
        raise Unauthenticated(
            f"malformed request: got {len(headers)} authorization headers, expected one of text."
        )
    kind, _, text = header.partition(" ")
    if kind.lower() != "bearer":
        raise Unauthenticated("malformed authorization header: expected `Bearer rock_<id>_<secret>`.")
    return text


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def utc(at: float) -> str:
    """Return a time in seconds since the epoch as text."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


# -- the tenant of the present call

_tenant: ContextVar[str] = ContextVar("rock_tenant", default="")


def current_tenant() -> str:
    """Return whom the present call acts for; "" is the owner of a server without tokens.

    Tasks and timers inherit it from the call that started them.
    """
    return _tenant.get()


def act_for(tenant: str) -> None:
    """Let the rest of the present task act for `tenant`."""
    _tenant.set(tenant)


@contextmanager
def acting_for(tenant: str) -> Iterator[None]:
    """Act for `tenant` inside the block."""
    former = _tenant.set(tenant)
    try:
        yield
    finally:
        _tenant.reset(former)
