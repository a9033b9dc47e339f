"""Union-find and what it is good for."""

from clusters.forest import Forest
from clusters.groups import friend_circles, has_cycle, merges_needed

__all__ = ["Forest", "friend_circles", "has_cycle", "merges_needed"]
