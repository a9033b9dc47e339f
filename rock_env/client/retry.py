"""What a failed RPC means and whether to send it again: only when the connection failed, always with the same keys.

It never invents an answer: when retries are used up the outcome is unknown, and `Unavailable` says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import grpc
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_delay,
    stop_before_delay,
    wait_exponential,
    wait_random,
)

from rock_env.errors import (
    CODES,
    DeadlineExceeded,
    InfraError,
    ResourceExhausted,
    RockError,
    Unavailable,
    from_code,
)

__all__ = ["Backoff", "patient", "retrying", "rock_error"]

T = TypeVar("T")

_CONNECTION_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""CANCELLED is what gRPC sends for a call that crosses with a closing door; our own cancellation never reaches here."""
_CUT_AT_ITS_START = "Internal error from Core"
"""What gRPC's client itself says where the connection breaks while a call opens, or a message meets its end; no server
sends it."""
_BY_STATUS = {kind.grpc: kind for kind in reversed(CODES.values()) if kind is not RockError}
_WAIT = wait_exponential(multiplier=0.05, max=2.0) + wait_random(0, 0.05)
_UNHINTED_S = 1.0
"""How long to wait for capacity where the server does not say when to come back."""


def rock_error(failure: grpc.aio.AioRpcError, address: str) -> tuple[RockError, bool]:
    """Return the error a failed RPC stands for, and whether the server itself answered with it."""
    metadata = dict(failure.trailing_metadata() or ())
    details = failure.details() or "no details"
    code = metadata.get("rock-error-code")
    if isinstance(code, str):
        hint = metadata.get("rock-retry-after-s")
        error = from_code(code, details, retry_after_s=float(hint) if hint else None)
        position = metadata.get("rock-queue-position")
        if isinstance(error, ResourceExhausted) and isinstance(position, str):
            error.queue_position = int(position)
        return error, True
    status = failure.code()
    cut = status is grpc.StatusCode.INTERNAL and details.startswith(_CUT_AT_ITS_START)
    if cut or status in _CONNECTION_LOST:
        message = (
            f"ROCK server at {address} is not available: {details}. Is it running, and with TLS if and only if the "
            "address says grpcs://? Start one with `ale rock serve`; in Python `rock_env.connect()` brings its own."
        )
        return Unavailable(message), False
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(
            f"the ROCK server at {address} did not answer within the call's deadline. Is it running, and reachable "
            "from here?"
        ), False
    kind = _BY_STATUS.get(status.name, InfraError)
    return kind(f"call to the ROCK server at {address} failed: {status.name}: {details}."), False


async def retrying(attempt: Callable[[], Awaitable[None]], *, for_s: float) -> None:
    """Run `attempt` until it does not raise `Unavailable`; no attempt begins later than `for_s` seconds after the first.

    Only time bounds it: how many attempts a server's start takes says nothing of the server.
    """
    try:
        await attempt()
        return
    except Unavailable as error:  # the common case costs no retry machinery
        if for_s <= 0:
            raise
        first = error
    policy = AsyncRetrying(
        retry=retry_if_exception_type(Unavailable),
        stop=stop_before_delay(for_s),
        wait=_WAIT,
        reraise=True,
    )
    try:
        await policy(attempt)
    except Unavailable as error:
        raise error from first


async def patient(attempt: Callable[[], Awaitable[T]], *, for_s: float) -> T:
    """Run `attempt` again while the server has no capacity, when it says it may have some, for at most `for_s` seconds.

    Only for what makes nothing when it is refused, such as a Create with its key. Raise the last `ResourceExhausted`.
    """

    def hinted(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        hint = error.retry_after_s if isinstance(error, ResourceExhausted) else None
        return _UNHINTED_S if hint is None else hint

    policy = AsyncRetrying(
        retry=retry_if_exception_type(ResourceExhausted),
        stop=stop_after_delay(for_s),
        wait=hinted,
        reraise=True,
    )
    return await policy(attempt)


class Backoff:
    """The waits between attempts to take up a broken stream again; each success starts anew."""

    def __init__(self, for_s: float) -> None:
        self._for_s = for_s
        self._attempts = 0
        self._broken_at = 0.0

    def success(self) -> None:
        """Forget earlier failures."""
        self._attempts = 0

    async def failure(self, error: Unavailable) -> None:
        """Wait before the next attempt. Raise `error` where the time is used up."""
        now = asyncio.get_running_loop().time()
        if not self._attempts:
            self._broken_at = now
        self._attempts += 1
        if now - self._broken_at >= self._for_s:
            raise error
        await asyncio.sleep(min(0.05 * 2 ** (self._attempts - 1), 2.0))
