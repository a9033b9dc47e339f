"""A bucket of tokens that fills at a steady rate."""


class Bucket:
    """Holds up to a capacity of tokens; starts full."""

    def __init__(self, capacity, rate, start=0):
        if capacity <= 0 or rate <= 0:
            raise ValueError("capacity and rate must be positive")
        self.capacity = capacity
        self.rate = rate
        self.tokens = capacity
        self.updated = start

    def refill(self, now):
        """Add the tokens earned since the last update; return all."""
        if now < self.updated:
            raise ValueError("time must not go back")
        earned = (now - self.updated) * self.rate
        self.tokens = min(self.capacity, self.tokens + earned)
        self.updated = now
        return self.tokens

    def take(self, now, cost=1):
        """Take tokens if there are enough; tell whether it worked."""
        if cost > self.refill(now):
            return False
        self.tokens -= cost
        return True

    def wait_time(self, now, cost=1):
        """Return how long to wait until a cost can be paid."""
        if cost > self.capacity:
            raise ValueError("cost is above the capacity")
        missing = cost - self.refill(now)
        if missing <= 0:
            return 0
        return missing / self.rate
