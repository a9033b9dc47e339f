"""Keeps a sandbox's lease alive while its user lives, and says when it is lost.

Used by `AsyncSandbox`. One timer per sandbox, no thread: a process that hangs or dies renews nothing, and the server
ends the sandbox when the lease is over. Renewing stops at `stop`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rock_env.errors import FailedPrecondition, NotFound, RockError, SandboxLost

__all__ = ["Lease"]

_SHARE = 1 / 3
"""When to renew, as a share of the lease: two attempts may fail before it ends."""


class Lease:
    """The lease of one sandbox. `renew(lease_s)` asks the server; `lease_s` None needs no renewing."""

    def __init__(
        self, sandbox_id: str, renew: Callable[[float], Awaitable[object]], lease_s: float | None
    ) -> None:
        self._sandbox_id = sandbox_id
        self._renew = renew
        self.lease_s = lease_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._ends_at = 0.0
        self.lost: asyncio.Future[SandboxLost] = self._loop.create_future()
        """Why the sandbox cannot be used any more, from when that is known."""

    def start(self, *, asked_at: float) -> None:
        """Renew from now on a lease that was asked for at `asked_at` of the loop's clock."""
        if self.lease_s is not None:
            self._ends_at = asked_at + self.lease_s
            self._arm(asked_at + self.lease_s * _SHARE)

    def stop(self) -> None:
        """Renew no more; what the server knows stays as it is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def lose(self, reason: str) -> None:
        """Give the sandbox up."""
        self.stop()
        if not self.lost.done():
            self.lost.set_result(SandboxLost(f"sandbox {self._sandbox_id!r} is lost: {reason}"))

    def check(self) -> None:
        """Raise `SandboxLost` once that is known."""
        if self.lost.done():
            raise self.lost.result()

    def _arm(self, at: float) -> None:
        self._timer = self._loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._task = self._loop.create_task(self._keep())

    async def _keep(self) -> None:
        assert self.lease_s is not None  # else no timer was set
        asked_at = self._loop.time()
        try:
            async with asyncio.timeout_at(self._ends_at):
                await self._renew(self.lease_s)
            self._ends_at = asked_at + self.lease_s
        except (NotFound, FailedPrecondition) as error:
            self._task = None
            self.lose(error.message)
            return
        except (RockError, TimeoutError) as error:
            if self._loop.time() >= self._ends_at:
                self._task = None
                self.lose(f"its lease of {self.lease_s:g} s could not be renewed in time: {error}")
                return
        self._task = None
        now = self._loop.time()
        self._arm(min(max(now, asked_at + self.lease_s * _SHARE), self._ends_at))
