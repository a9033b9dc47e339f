"""The cache itself."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from keepsake.clock import SystemClock
from keepsake.stats import Stats


class Cache:
    """Hold up to `capacity` entries for `ttl` seconds each; the least recently used is evicted first.

    The order of `_entries` is the order of use, oldest first.
    """

    def __init__(self, capacity: int, ttl: float, clock: Any = None) -> None:
        if capacity < 1 or ttl <= 0:
            raise ValueError("capacity must be at least 1 and ttl positive")
        self.capacity = capacity
        self.ttl = ttl
        self.stats = Stats()
        self._clock = clock or SystemClock()
        self._entries: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def get(self, key: Hashable, default: Any = None) -> Any:
        """Return the value of `key`, or `default` if it is absent or too old."""
        entry = self._entries.get(key)
        if entry is None:
            self.stats.misses += 1
            return default
        expires, value = entry
        if expires <= self._clock.now():
            del self._entries[key]
            self.stats.misses += 1
            self.stats.expirations += 1
            return default
        self.stats.hits += 1
        return value

    def put(self, key: Hashable, value: Any) -> None:
        """Store `value`; its time to live starts now."""
        if len(self._entries) >= self.capacity:
            self._entries.popitem(last=False)
            self.stats.evictions += 1
        self._entries[key] = (self._clock.now() + self.ttl, value)

    def __len__(self) -> int:
        """Return how many entries are held and not too old."""
        now = self._clock.now()
        return sum(expires > now for expires, _ in self._entries.values())

    def __contains__(self, key: Hashable) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry[0] > self._clock.now()
