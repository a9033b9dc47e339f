"""How many bytes of large messages the calls of one tenant, and of all, hold at once.

Used by the boundary of gRPC and by the REST face. Each message costs the server several times its size until its call
has ended: as it came, parsed, and on its way to a worker. Small messages do not count.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections import Counter
from types import TracebackType

from rock_env.errors import ResourceExhausted
from rock_env.server.parsing import off_loop

__all__ = ["HELD", "LARGE_BYTES", "HeldBytes", "Share"]

LARGE_BYTES = 1 << 20
"""A message up to here does not count."""
_RETRY_S = 1.0
_QUIET_S = 0.5
_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""What gives the kernel back what was freed, where the C library is glibc."""


class HeldBytes:
    """What calls hold. Use it on one event loop."""

    def __init__(self, most_of_one: int, most: int) -> None:
        """`most_of_one` is for each tenant and `most` for all; a tenant who holds nothing may hold one message."""
        self.most_of_one, self.most = most_of_one, most
        self.by_tenant: Counter[str] = Counter()
        self._tidying: asyncio.TimerHandle | None = None
        self._trimming: asyncio.Future[object] | None = None

    def share(self, tenant: str) -> Share:
        """Return the share of one call; enter it for as long as the call holds its messages."""
        return Share(self, tenant)

    def change(self, tenant: str, former: int, size: int) -> None:
        """Let a call of a tenant hold so many bytes in place of the former ones. Raise `ResourceExhausted`."""
        more = size - former
        if more > 0 and self.by_tenant[tenant] > former:
            for whose, got, most in (
                ("your calls", self.by_tenant[tenant] + more, self.most_of_one),
                ("all calls", self.by_tenant.total() + more, self.most),
            ):
                if got > most:
                    raise ResourceExhausted(
                        f"{whose} would hold {got} bytes of large messages at once, expected at most {most}. Wait for "
                        "some to end, or send smaller messages.",
                        retry_after_s=_RETRY_S,
                    )
        self.by_tenant[tenant] += more
        if not self.by_tenant[tenant]:
            del self.by_tenant[tenant]
        if more < 0:
            self.tidy_soon()

    def tidy_soon(self) -> None:
        """Give the memory back that a large message took, a moment later, once for all that end until then."""
        if self._tidying is None:
            self._tidying = asyncio.get_running_loop().call_later(_QUIET_S, self._tidy)

    def _tidy(self) -> None:
        # Calls that failed hold their messages in cycles, and freed blocks stay with the process.
        self._tidying = None
        gc.collect(1)  # they are young; a millisecond
        if _trim is not None:
            self._trimming = asyncio.ensure_future(off_loop(_trim, 0))


class Share:
    """What one call holds: its latest message."""

    __slots__ = ("_held", "_size", "_tenant")

    def __init__(self, held: HeldBytes, tenant: str) -> None:
        self._held, self._tenant, self._size = held, tenant, 0

    def hold(self, size: int) -> None:
        """Hold a message of so many bytes in place of the one before. Raise `ResourceExhausted`."""
        size = size if size > LARGE_BYTES else 0
        if size != self._size:
            self._held.change(self._tenant, self._size, size)
            self._size = size

    def __enter__(self) -> Share:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hold(0)


HELD = HeldBytes(most_of_one=32 << 20, most=64 << 20)
"""Of this process."""
