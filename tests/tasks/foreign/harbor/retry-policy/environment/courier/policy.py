class Policy:
    """How often and how long."""

    def __init__(self, attempts=3, first=1.0, longest=60.0):
        if attempts < 1:
            raise ValueError("attempts must be at least 1")
        self.attempts = attempts
        self.first = first
        self.longest = longest

    def waits(self):
        """Yield the time before each further attempt."""
        wait = self.first
        for _ in range(self.attempts):
            yield wait
            wait *= 2
