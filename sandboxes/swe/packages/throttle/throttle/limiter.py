"""One bucket for each key."""

from throttle.bucket import Bucket


class Limiter:
    """Counts what was allowed and what was refused for each key."""

    def __init__(self, capacity, rate=1):
        self.capacity = capacity
        self.rate = rate
        self.buckets = {}
        self.refused = {}

    def bucket_of(self, key, now):
        """Return the bucket of a key, made full at its first use."""
        if key not in self.buckets:
            self.buckets[key] = Bucket(self.capacity, self.rate, now)
        return self.buckets[key]

    def allow(self, key, now, cost=1):
        """Tell whether a request may go on, and count it if not."""
        if self.bucket_of(key, now).take(now, cost):
            return True
        self.refused[key] = self.refused.get(key, 0) + 1
        return False

    def forget_idle(self, now, idle):
        """Drop buckets not used for longer than an idle time; return them."""
        dropped = []
        for key, bucket in self.buckets.items():
            if now - bucket.updated > idle:
                dropped.append(key)
        for old_key in dropped:
            del self.buckets[old_key]
        return dropped
