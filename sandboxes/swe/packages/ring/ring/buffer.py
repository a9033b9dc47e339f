"""A buffer of fixed capacity."""


class RingBuffer:
    """Keeps at most capacity items; old ones are overwritten or refused."""

    def __init__(self, capacity, overwrite=True):
        if capacity < 1:
            raise ValueError("capacity must be positive")
        self.slots = [None] * capacity
        self.overwrite = overwrite
        self.start = 0
        self.count = 0

    def push(self, item):
        """Add an item; tell whether it was taken in."""
        capacity = len(self.slots)
        if self.count == capacity:
            if not self.overwrite:
                return False
            self.start = (self.start + 1) % capacity
            self.count -= 1
        self.slots[(self.start + self.count) % capacity] = item
        self.count += 1
        return True

    def pop(self):
        """Take the oldest item out."""
        if self.count == 0:
            raise IndexError("the buffer is empty")
        oldest = self.slots[self.start]
        self.start = (self.start + 1) % len(self.slots)
        self.count = self.count - 1
        return oldest

    def items(self):
        """Return the items as a list, oldest first."""
        size = len(self.slots)
        return [self.slots[(self.start + i) % size] for i in range(self.count)]
