"""States before and after the current one."""


class History:
    """Keeps a state and at most a limit of older ones."""

    def __init__(self, first, limit=100):
        if limit < 1:
            raise ValueError("limit must be at least 1")
        self.state = first
        self.limit = limit
        self.past = []
        self.future = []

    def push(self, state):
        """Go to a new state; tell whether it differs from the current one."""
        if state == self.state:
            return False
        self.past = [*self.past, self.state][-self.limit :]
        self.future.clear()
        self.state = state
        return True

    def undo(self, times=1):
        """Go back up to some times; return how many times it was."""
        done = 0
        for _ in range(min(times, len(self.past))):
            self.future.append(self.state)
            self.state = self.past.pop()
            done += 1
        return done

    def redo(self, times=1):
        """Go forward up to some times; return how many times it was."""
        count = min(times, len(self.future))
        for _ in range(count):
            self.past.append(self.state)
            self.state = self.future.pop()
        return count
