"""A sliding window over a stream of numbers."""

from ring.buffer import RingBuffer


class Window:
    """The last numbers of a stream, with their sum kept up to date."""

    def __init__(self, size):
        self.buffer = RingBuffer(size)
        self.size = size
        self.total = 0

    def add(self, number):
        """Take a number in and return the one that fell out, if any."""
        dropped = None
        if self.buffer.count == self.size:
            dropped = self.buffer.pop()
            self.total -= dropped
        self.buffer.push(number)
        self.total += number
        return dropped

    def mean(self, default=0):
        """Return the mean of the window, or default if it is empty."""
        if self.buffer.count < 1:
            return default
        return self.total / self.buffer.count

    def spread(self):
        """Return the greatest minus the smallest number."""
        numbers = self.buffer.items()
        if not numbers:
            return 0
        return max(numbers) - min(numbers)
