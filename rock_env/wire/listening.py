"""Opens the ports of a server, for clients and for other servers alike."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import grpc

from rock_env.errors import Unavailable
from rock_env.wire.channel import target

__all__ = ["BACKLOG", "bind", "host_and_port", "listen", "open_listener"]

_OWNER_ONLY = 0o177
"""The umask under which a unix socket is made: who may connect may run code here."""

BACKLOG = 1024
_DEAD_PEER_S = 300
"""A peer that vanished without closing, or that takes nothing of what is sent to it, is cut off after so long.

The latter may live and just not read. One bound for both: where set, TCP_USER_TIMEOUT decides for keepalive, too (tcp(7)).
"""
_PROBE_S = 60


def bind(server: grpc.aio.Server, listen: str, credentials: grpc.ServerCredentials | None) -> str:
    """Listen and return the address in the form clients are given."""
    former = os.umask(_OWNER_ONLY)
    try:
        secured = credentials is not None
        port = server.add_secure_port(listen, credentials) if secured else server.add_insecure_port(listen)
    except RuntimeError as error:
        raise Unavailable(
            f"cannot listen on {listen}. Is another server using it, is the address another machine's, or is the "
            "folder missing?"
        ) from error
    finally:
        os.umask(former)
    if listen.startswith("unix:"):
        return f"unix://{Path(listen.removeprefix('unix:')).absolute()}"
    return f"{'grpcs' if secured else 'grpc'}://{listen.rpartition(':')[0]}:{port}"


def listen(address: str) -> socket.socket:
    """Return a listening TCP socket whose connections notice a dead peer. Raise `Unavailable`."""
    try:
        return open_listener(target(address))
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {address}: {error.strerror}. Is another server using it, or is the address another "
            "machine's?"
        ) from error


def open_listener(address: str) -> socket.socket:
    """Do what `listen` does at HOST:PORT. Raise `OSError`."""
    host, _, port = address.rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # Of a name that has both, such as localhost, the address that more clients reach.
    family, kind, proto, _, where = min(found, key=lambda one: one[0] is not socket.AF_INET)
    listener = socket.socket(family, kind, proto)
    try:
        for level, option, value in (
            (socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_S),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_S),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_PEER_S * 1000),
            (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        ):
            listener.setsockopt(level, option, value)
        listener.bind(where)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def host_and_port(listener: socket.socket) -> str:
    """Return where a TCP socket listens, as it stands in a URL."""
    host, port = listener.getsockname()[:2]
    return f"{f'[{host}]' if ':' in host else host}:{port}"
