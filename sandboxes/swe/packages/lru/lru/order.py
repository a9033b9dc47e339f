"""The order in which keys were used."""


class UsageOrder:
    """Remembers when each key was used last, by a running number."""

    def __init__(self):
        self.clock = 0
        self.used = {}

    def touch(self, key):
        """Note that key is used now."""
        self.clock += 1
        self.used[key] = self.clock

    def forget(self, name):
        """Remove a key; tell whether it was there."""
        if name not in self.used:
            return False
        del self.used[name]
        return True

    def oldest(self):
        """Return the key that was not used for the longest time, or None."""
        best = None
        lowest = self.clock + 1
        for candidate, moment in self.used.items():
            if moment < lowest:
                best = candidate
                lowest = moment
        return best

    def newest(self, count=1):
        """Return the keys used last, the latest one first."""
        ranked = sorted(self.used, key=self.used.get, reverse=True)
        return ranked[:count]
