"""A queue that hands out the most urgent item first."""

from heaps.sifting import sift_down, sift_up


class PriorityQueue:
    """Items with priorities; low numbers first, equal ones in their order."""

    def __init__(self):
        self.heap = []
        self.counter = 0

    def push(self, item, priority=0):
        """Add an item and return the new length."""
        self.heap.append((priority, self.counter, item))
        self.counter += 1
        sift_up(self.heap, len(self.heap) - 1)
        return len(self.heap)

    def peek(self, default=None):
        """Return the next item without taking it, or default."""
        if not self.heap:
            return default
        return self.heap[0][2]

    def pop(self):
        """Take the next item; raise IndexError if there is none."""
        if len(self.heap) == 0:
            raise IndexError("the queue is empty")
        first = self.heap[0]
        last = self.heap.pop()
        if self.heap:
            self.heap[0] = last
            sift_down(self.heap, 0)
        return first[2]
