"""The cache itself."""

from lru.order import UsageOrder


class Cache:
    """At most limit values by key."""

    def __init__(self, limit):
        if limit < 1:
            raise ValueError("limit must be at least 1")
        self.limit = limit
        self.values = {}
        self.order = UsageOrder()

    def put(self, key, value):
        """Store a value and return the key that was dropped for it, if any."""
        dropped = None
        if key not in self.values and len(self.values) >= self.limit:
            dropped = self.order.oldest()
            self.remove(dropped)
        self.values[key] = value
        self.order.touch(key)
        return dropped

    def get(self, name, default=None):
        """Return the value and count it as used, or default."""
        if name not in self.values:
            return default
        self.order.touch(name)
        return self.values[name]

    def remove(self, gone):
        """Drop a key; tell whether it was in the cache."""
        known = self.order.forget(gone)
        if known:
            del self.values[gone]
        return known
