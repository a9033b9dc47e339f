"""A timer heap: many deadlines, one timer of the event loop, no polling.

Used by the sandbox core. It says when a key is due and forgets it; what that means is its caller's to decide.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

__all__ = ["DeadlineHeap", "DeadlineTimer"]


class DeadlineHeap:
    """At most one deadline per key. Setting one anew leaves the old entry in the heap, to be skipped later."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}

    def set(self, key: str, at: float) -> None:
        """Set or move the key's deadline."""
        self._at[key] = at
        heapq.heappush(self._heap, (at, key))
        if len(self._heap) > 2 * len(self._at) + 64:  # renewals would pile up entries far in the future
            self._heap = [(at, key) for key, at in self._at.items()]
            heapq.heapify(self._heap)

    def discard(self, key: str) -> None:
        """Forget the key's deadline, if it has one."""
        self._at.pop(key, None)

    def next_at(self) -> float | None:
        """Return the earliest deadline, or None if there is none."""
        while self._heap and self._at.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[str]:
        """Return the keys whose deadline has come, earliest first, and forget them."""
        due = []
        while (at := self.next_at()) is not None and at <= now:
            key = heapq.heappop(self._heap)[1]
            del self._at[key]
            due.append(key)
        return due


class DeadlineTimer:
    """A heap that calls `expire(key)` on the running event loop; times are those of `loop.time()`."""

    def __init__(self, expire: Callable[[str], None]) -> None:
        self._expire = expire
        self._heap = DeadlineHeap()
        self._timer: asyncio.TimerHandle | None = None

    def set(self, key: str, at: float) -> None:
        """Set or move the key's deadline."""
        self._heap.set(key, at)
        self._arm()

    def discard(self, key: str) -> None:
        """Forget the key's deadline. The timer may still fire once, for nothing."""
        self._heap.discard(key)

    def close(self) -> None:
        """Stop. Nothing expires any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._heap = DeadlineHeap()

    def _arm(self) -> None:
        at = self._heap.next_at()
        if self._timer is not None and at is not None and self._timer.when() <= at:
            return  # it will look again then
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None:
            self._timer = asyncio.get_running_loop().call_at(at, self._fire)

    def _fire(self) -> None:
        self._timer = None
        for key in self._heap.pop_due(asyncio.get_running_loop().time()):
            self._expire(key)
        self._arm()
