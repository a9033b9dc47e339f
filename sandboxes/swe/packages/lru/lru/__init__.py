"""A cache with limited space that drops the least recently used entry."""

from lru.cache import Cache
from lru.memory import Memory
from lru.order import UsageOrder

__all__ = ["Cache", "Memory", "UsageOrder"]
