"""Certificates and keys from PEM files, checked before gRPC sees them, and gRPC's credentials made of them.

gRPC reports a bad file at the first handshake, as a lost connection; here it is an `InvalidArgument` that names the
file. It verifies no peer itself: gRPC does.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from rock_env.errors import InvalidArgument
from rock_env.foreign.files import read_regular

__all__ = ["client_context", "client_credentials", "server_credentials"]


def server_credentials(
    cert: str | Path, key: str | Path, client_ca: str | Path | None = None
) -> grpc.ServerCredentials:
    """Return what a TLS server needs; with `client_ca` only clients whose certificate it signed may connect."""
    chain = _chain(cert, key)
    roots = _roots(client_ca) if client_ca else None
    return grpc.ssl_server_credentials(
        [chain], root_certificates=roots, require_client_auth=roots is not None
    )


def client_credentials(
    *, ca: str | Path | None = None, cert: str | Path | None = None, key: str | Path | None = None
) -> grpc.ChannelCredentials:
    """Return what a TLS client needs; without `ca` the roots gRPC ships with are trusted."""
    if bool(cert) != bool(key):
        raise InvalidArgument(
            f"a client certificate needs both files: got cert {str(cert or '')!r} and key {str(key or '')!r}."
        )
    private, public = _chain(cert, key) if cert and key else (None, None)
    return grpc.ssl_channel_credentials(
        root_certificates=_roots(ca) if ca else None, private_key=private, certificate_chain=public
    )


def client_context(
    *, ca: str | Path | None = None, cert: str | Path | None = None, key: str | Path | None = None
) -> ssl.SSLContext:
    """Return the same for a client of the REST face; without `ca` the system's roots are trusted."""
    client_credentials(ca=ca, cert=cert, key=key)  # the same checks, and their messages
    context = ssl.create_default_context(cafile=ca or None)
    if cert and key:
        context.load_cert_chain(cert, key)
    return context


def _chain(cert: str | Path, key: str | Path) -> tuple[bytes, bytes]:
    """Return (key, certificate chain) after checking that they belong together."""
    public, private = _read(cert, "certificate"), _read(key, "key")
    try:
        # An empty password instead of a prompt on the terminal: a server has nobody to ask.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise InvalidArgument(
            f"certificate {str(cert)!r} and key {str(key)!r} cannot be used: {_reason(error)}. Expected a PEM "
            "certificate and its PEM key without a passphrase."
        ) from error
    return private, public


def _roots(ca: str | Path) -> bytes:
    content = _read(ca, "CA certificate")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidArgument(
            f"CA file {str(ca)!r} cannot be used: {_reason(error)}. Expected PEM certificates."
        ) from error
    return content


def _read(path: str | Path, what: str) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise InvalidArgument(f"cannot read the {what} {str(path)!r}: {error.strerror}.") from error


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return reason.replace("_", " ").lower() if reason else str(error) or type(error).__name__
