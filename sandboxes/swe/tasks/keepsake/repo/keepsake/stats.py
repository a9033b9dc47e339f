"""Counters of one cache."""

from dataclasses import dataclass


@dataclass
class Stats:
    """What happened since the cache was made."""

    hits: int = 0
    misses: int = 0
    evictions: int = 0
    expirations: int = 0

    @property
    def hit_rate(self) -> float:
        """Return hits / lookups, 0.0 before the first lookup."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else 0.0
