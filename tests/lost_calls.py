"""Which failed calls a client sends again; by the SDK's own table, so that tests on bare stubs mean the same."""

from __future__ import annotations

import grpc

from rock_env.client.retry import rock_error
from rock_env.errors import Unavailable


def lost(failure: grpc.aio.AioRpcError) -> bool:
    """Return whether the server was not available to the call."""
    return isinstance(rock_error(failure, "the server")[0], Unavailable)
