"""Addresses and channel options, the same on both ends of a ROCK connection.

It opens nothing.
"""

from __future__ import annotations

import ipaddress
import re

from rock_env.errors import InvalidArgument

__all__ = [
    "CLIENT_OPTIONS",
    "MOST_TO_SERVER_BYTES",
    "SERVER_OPTIONS",
    "is_local",
    "is_rest",
    "is_tls",
    "target",
]

_TLS = ("grpcs://", "https://")
_REST = ("http://", "https://")
_SCHEMES = ("grpc://", *_TLS, *_REST)
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]")
_MAX_MESSAGE_BYTES = 64 << 20
MOST_TO_SERVER_BYTES = 8 << 20
"""Of one message to a server, which refuses a larger one before it is sent; files and contexts go as streams of chunks."""
_SENT = ("grpc.max_send_message_length", _MAX_MESSAGE_BYTES)
# A peer that vanished without closing is noticed: 10 s after something was sent to it, else within 30 s. A server that
# restarts refuses connections meanwhile and is asked again after 0.1 to 1 s. `min_reconnect_backoff_ms` is no wait: it is
# what gRPC gives an attempt, name, TCP and TLS together, which take four round trips, and more where packets are lost.
CLIENT_OPTIONS = [
    ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
    _SENT,
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 20_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
]
SERVER_OPTIONS = [
    ("grpc.max_receive_message_length", MOST_TO_SERVER_BYTES),
    _SENT,
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),  # two servers on one port is a mistake, never a wish
    # Beyond 1,000 calls that the event loop has not taken yet, gRPC ends some at random as CANCELLED, without a word: a
    # burst of so many is answered by name instead. Beyond the second number it ends all.
    ("grpc.server.max_pending_requests", 8_192),
    ("grpc.server.max_pending_requests_hard_limit", 16_384),
]


def target(address: str) -> str:
    """Return gRPC's form of `unix:///path`, `unix:path`, `host:port`, `grpc://host:port` or `grpcs://host:port`.

    Of REST's `http://host:port` and `https://host:port` it returns host:port. Raise `InvalidArgument` for anything
    else.
    """
    if address.startswith("unix:"):
        path = address.removeprefix("unix://" if address.startswith("unix://") else "unix:")
        if path:
            return f"unix:{path}"
    scheme = next((scheme for scheme in _SCHEMES if address.startswith(scheme)), "")
    host, colon, port = address.removeprefix(scheme).rpartition(":")
    if (
        colon
        and host
        and port.isascii()
        and port.isdigit()
        and int(port[:6]) < 65536
        and _HOST.fullmatch(host)
    ):
        return f"{host}:{port}"
    raise InvalidArgument(
        f"bad ROCK address {address!r}: expected unix:///path/to/socket, host:port, grpc://host:port, or "
        "grpcs://host:port with TLS; for REST http://host:port or https://host:port."
    )


def is_tls(address: str) -> bool:
    """Return whether the address asks for TLS."""
    return address.startswith(_TLS)


def is_rest(address: str) -> bool:
    """Return whether the address is one of the REST face."""
    return address.startswith(_REST)


def is_local(address: str) -> bool:
    """Return whether no network lies on the way: a unix socket, or a loopback address by number or as localhost."""
    plain = target(address)
    if plain.startswith("unix:"):
        return True
    host = plain.rpartition(":")[0].removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
