"""Remembered results of a function."""

from lru.cache import Cache

MISSING = object()


class Memory:
    """Calls a function of one argument once per argument, as far as it fits."""

    def __init__(self, function, limit=3):
        self.function = function
        self.cache = Cache(limit)
        self.hits = 0
        self.misses = 0

    def call(self, argument):
        """Return the function's result, from the cache if it is there."""
        known = self.cache.get(argument, MISSING)
        if known is not MISSING:
            self.hits += 1
            return known
        self.misses += 1
        result = self.function(argument)
        self.cache.put(argument, result)
        return result

    def hit_rate(self, digits=2):
        """Return hits divided by calls, 0 before the first call."""
        calls = self.hits + self.misses
        if calls == 0:
            return 0.0
        return round(self.hits / calls, digits)
