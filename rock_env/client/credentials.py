"""What a client shows a server and what it asks of one: an API token, a CA to trust, a certificate of its own.

Made by `rock_env.connect` and users of `Client`, or from the environment. It opens channels and keeps nothing else;
the token is never in its repr.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import grpc

from rock_env.client.rest import RestChannel
from rock_env.errors import InvalidArgument
from rock_env.security.tls import client_context, client_credentials
from rock_env.wire.channel import CLIENT_OPTIONS, is_local, is_rest, is_tls, target

__all__ = ["Credentials"]

_MOST = "grpc.max_receive_message_length"


@dataclass(frozen=True, slots=True)
class Credentials:
    """How to reach a server that is guarded; all empty for one that is not."""

    token: str = field(default="", repr=False)
    """An API token, `rock_<id>_<secret>`; environment variable ROCK_TOKEN."""
    ca: str = ""
    """PEM file of the CA that signed the server's certificate; ROCK_CA. Empty trusts the public ones."""
    cert: str = ""
    """PEM file of the client's certificate, for a server that asks for one; ROCK_CERT."""
    key: str = ""
    """PEM file of its key; ROCK_KEY."""
    server_name: str = ""
    """Whom the server's certificate names, where a port of this machine leads to it; empty: the address's host."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Take what ROCK_TOKEN, ROCK_CA, ROCK_CERT and ROCK_KEY hold."""
        names = ("token", "ca", "cert", "key")
        return cls(**{name: environment.get(f"ROCK_{name.upper()}", "") for name in names})

    def channel(self, address: str, *, most_bytes: int | None = None) -> grpc.aio.Channel:
        """Open a channel on the running loop. Raise `InvalidArgument` where files or address cannot be used.

        For an http:// or https:// address its calls travel over REST. Over gRPC, `most_bytes` bounds one message of a server
        that is not trusted; a compressed one is refused then, since its length says nothing of what it becomes.
        """
        self.check(address)
        if is_rest(address):
            tls = client_context(ca=self.ca, cert=self.cert, key=self.key) if is_tls(address) else None
            return RestChannel(address, tls=tls)
        bound = {} if most_bytes is None else {_MOST: most_bytes, "grpc.per_message_decompression": 0}
        options: list[tuple[str, str | int]] = [*{**dict(CLIENT_OPTIONS), **bound}.items()]
        if not is_tls(address):
            return grpc.aio.insecure_channel(target(address), options=options)
        credentials = client_credentials(ca=self.ca, cert=self.cert, key=self.key)
        if self.server_name:
            options += [("grpc.ssl_target_name_override", self.server_name), ("grpc.enable_http_proxy", 0)]
        return grpc.aio.secure_channel(target(address), credentials, options=options)

    def metadata(self) -> tuple[tuple[str, str], ...] | None:
        """Return what goes with each call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else None

    def check(self, address: str) -> None:
        """Raise `InvalidArgument` for what would not go to this address: files without TLS, a token in clear text."""
        plain = not is_tls(address)
        files = [name for name in ("ca", "cert", "key") if getattr(self, name)]
        if files and plain and not address.startswith("unix:"):
            raise InvalidArgument(
                f"{address} is an address without TLS, but {' and '.join(files)} was given. Use grpcs://, or unset "
                f"{' and '.join(f'ROCK_{name.upper()}' for name in files)}."
            )
        if not self.token:
            return
        if not (self.token.isascii() and self.token.isprintable()):
            raise InvalidArgument(
                "malformed API token: it holds characters no token has. Was it copied in full?"
            )
        if plain and not is_local(address):
            raise InvalidArgument(
                f"will not send an API token to {address} in clear text. Use grpcs:// there, or unset ROCK_TOKEN."
            )
