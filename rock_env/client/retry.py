"""What a failed RPC means and whether to send it again: only when the connection failed, always with the same keys.

Called by the client for each RPC. It never invents an answer: when retries are used up the outcome is unknown,
and `Unavailable` says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import grpc
from tenacity import (
    AsyncRetrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    wait_exponential,
    wait_random,
)

from rock_env.errors import CODES, InfraError, RockError, Unavailable, from_code

__all__ = ["MAX_ATTEMPTS", "retrying", "rock_error"]

MAX_ATTEMPTS = 8
_CONNECTION_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""CANCELLED is what calls in flight get from a server that stops; our own cancellation never reaches here."""
_BY_STATUS = {kind.grpc: kind for kind in reversed(CODES.values()) if kind is not RockError}


def rock_error(failure: grpc.aio.AioRpcError, address: str) -> tuple[RockError, bool]:
    """Return the error a failed RPC stands for, and whether the server itself answered with it."""
    metadata = dict(failure.trailing_metadata() or ())
    details = failure.details() or "no details"
    code = metadata.get("rock-error-code")
    if isinstance(code, str):
        hint = metadata.get("rock-retry-after-s")
        return from_code(code, details, retry_after_s=float(hint) if hint else None), True
    status = failure.code()
    if status in _CONNECTION_LOST:
        message = (
            f"ROCK server at {address} is not available: {details}. Is it running, and with TLS if and only if the "
            "address says grpcs://? Start one with `ale rock serve`, or leave the address out to get an embedded one."
        )
        return Unavailable(message), False
    kind = _BY_STATUS.get(status.name, InfraError)
    return kind(f"call to the ROCK server at {address} failed: {status.name}: {details}."), False


async def retrying(attempt: Callable[[], Awaitable[None]], *, for_s: float) -> None:
    """Run `attempt` until it does not raise `Unavailable`, at most `MAX_ATTEMPTS` times within `for_s` seconds."""
    try:
        await attempt()
        return
    except Unavailable as error:  # the common case costs no retry machinery
        if for_s <= 0:
            raise
        first = error
    policy = AsyncRetrying(
        retry=retry_if_exception_type(Unavailable),
        stop=stop_after_attempt(MAX_ATTEMPTS - 1) | stop_after_delay(for_s),
        wait=wait_exponential(multiplier=0.05, max=2.0) + wait_random(0, 0.05),
        reraise=True,
    )
    try:
        await policy(attempt)
    except Unavailable as error:
        raise error from first
