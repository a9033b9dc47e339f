"""Opens the ports of a gRPC server, for clients and for other servers alike."""

from __future__ import annotations

import os
from pathlib import Path

import grpc

from rock_env.errors import Unavailable

__all__ = ["bind"]

_OWNER_ONLY = 0o177
"""The umask under which a unix socket is made: who may connect may run code here."""


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
