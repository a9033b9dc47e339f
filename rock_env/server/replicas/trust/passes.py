"""The pass with which one replica vouches to another for whom it forwards a call.

Made by `server/replicas/forward` and checked there. The secret is in the shared store, so whoever can sign can read
every record anyway. A pass is good once, for one method of one replica, for a minute; what a client sends under this
name is worth nothing. Where the client's token was a sandbox's own, the pass allows no more than that token did.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time

import msgspec

from rock_env.errors import Unauthenticated
from rock_env.security.sandbox_tokens import Limit

__all__ = ["HEADER", "PEERS", "Admitted", "Passes"]

HEADER = "x-rock-replica-pass"
PEERS = "rock.v1.ReplicaService"
"""The service that replicas offer each other alone."""
_GOOD_S = 60.0
"""How far the clocks of two replicas may differ, and how long a pass must be remembered once it was used."""


class Admitted(msgspec.Struct, frozen=True):
    """For whom a call is made."""

    tenant: str
    limit: Limit | None = None
    """What alone it may touch; None: all that is its tenant's."""


class _Pass(msgspec.Struct, forbid_unknown_fields=True):
    to: str
    method: str
    caller: Admitted
    at: float
    nonce: str


_decoder = msgspec.json.Decoder(_Pass)


class Passes:
    """Signs and checks passes with the secret of a store."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._used: dict[str, float] = {}

    def sign(self, *, to: str, method: str, caller: Admitted, now: float | None = None) -> str:
        """Return a header that lets replica `to` act for `caller` in one call of `method`."""
        now = time.time() if now is None else now
        content = msgspec.json.encode(_Pass(to, method, caller, now, secrets.token_hex(16)))
        return f"{base64.urlsafe_b64encode(content).decode()}.{self._mac(content).hex()}"

    def check(self, header: str | bytes, *, to: str, method: str, now: float | None = None) -> Admitted:
        """Return whom a good pass is for. Raise `Unauthenticated`; no message repeats what was sent."""
        now = time.time() if now is None else now
        text, _, mac = header.partition(".") if isinstance(header, str) else ("", "", "")
        try:
            content, sent = base64.b64decode(text.encode(), altchars=b"-_", validate=True), bytes.fromhex(mac)
        except (ValueError, binascii.Error):
            content, sent = b"", b""
        if not hmac.compare_digest(self._mac(content), sent):
            raise Unauthenticated(
                f"{HEADER} is for servers that share this one's store. Leave it out, and use an API token."
            )
        known = _decoder.decode(content)
        if (known.to, known.method) != (to, method) or abs(known.at - now) > _GOOD_S:
            raise Unauthenticated(
                f"this {HEADER} is for another call, or too old. Do the servers' clocks agree within {_GOOD_S:g} s?"
            )
        self._use(known, now)
        return known.caller

    def _use(self, known: _Pass, now: float) -> None:
        while self._used and next(iter(self._used.values())) + 2 * _GOOD_S < now:
            del self._used[next(iter(self._used))]  # it would be too old by now
        if known.nonce in self._used:
            raise Unauthenticated(f"this {HEADER} was used before; each is good for one call.")
        self._used[known.nonce] = now

    def _mac(self, content: bytes) -> bytes:
        return hmac.digest(self._secret, b"rock-replica-pass\0" + content, hashlib.sha256)
