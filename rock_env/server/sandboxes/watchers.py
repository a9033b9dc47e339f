"""Who wants to hear of changed sandboxes: every change is pushed into each listener's own bounded queue.

Used by the sandbox core. A listener that does not keep up is told so and dropped; it never slows the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

from rock_env.errors import ResourceExhausted, Unavailable
from rock_env.lifecycle import SandboxRecord

__all__ = ["QUEUE_LIMIT", "Watcher", "Watchers"]

QUEUE_LIMIT = 10_000
"""Changes kept for a listener that is behind: one of every sandbox of a large server."""


class Watcher:
    """One listener, from its registration on; iterate over it. Changes must be offered in the order of revisions."""

    def __init__(self, tenant: str, labels: Mapping[str, str], limit: int) -> None:
        self._tenant = tenant
        self._labels = labels.items()
        self._limit = limit
        self._queue: asyncio.Queue[SandboxRecord | None] = asyncio.Queue()
        self._behind = False
        self._known = 0

    def offer(self, record: SandboxRecord) -> bool:
        """Queue a change; return False if the listener is too far behind to go on."""
        if self._tenant == record.tenant and self._labels <= record.labels.items():
            self._behind = self._queue.qsize() >= self._limit
            self._queue.put_nowait(None if self._behind else record)
        return not self._behind

    def end(self) -> None:
        """Let the iteration end, after what is queued, as the server is stopping."""
        self._queue.put_nowait(None)

    def skip(self, revision: int) -> None:
        """Leave out changes up to this revision: the listener knows them."""
        self._known = revision

    async def __aiter__(self) -> AsyncIterator[SandboxRecord]:
        """Yield changes as they come. Raise `ResourceExhausted` when behind, `Unavailable` when the server stops."""
        while True:
            record = await self._queue.get()
            if record is None:
                break
            if record.revision > self._known:
                self._known = record.revision
                yield record
        if self._behind:
            raise ResourceExhausted(
                f"this Watch fell {self._limit} changes behind. Watch again with after_revision={self._known}."
            )
        raise Unavailable("the server is stopping. Watch again once it is back.")


class Watchers:
    """All listeners of one server."""

    def __init__(self, *, limit: int = QUEUE_LIMIT) -> None:
        self._limit = limit
        self._all: set[Watcher] = set()
        self.told: list[Callable[[SandboxRecord], None]] = []
        """Parts of the server that are told at once of every change, of whatever tenant."""
        self._ended = False

    def __len__(self) -> int:
        return len(self._all)

    def add(self, tenant: str, labels: Mapping[str, str]) -> Watcher:
        """Register a listener for a tenant's sandboxes with these labels; it misses nothing from now on."""
        watcher = Watcher(tenant, labels, self._limit)
        if self._ended:
            watcher.end()
        self._all.add(watcher)
        return watcher

    def remove(self, watcher: Watcher) -> None:
        """Forget a listener."""
        self._all.discard(watcher)

    def publish(self, record: SandboxRecord) -> None:
        """Tell everyone concerned."""
        for tell in self.told:
            tell(record)
        for watcher in tuple(self._all):
            if not watcher.offer(record):
                self._all.discard(watcher)

    def end(self) -> None:
        """End all listeners, and those to come."""
        self._ended = True
        for watcher in self._all:
            watcher.end()
