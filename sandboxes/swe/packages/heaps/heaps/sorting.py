"""Sorting and merging by means of a heap."""

from heaps.queue import PriorityQueue
from heaps.sifting import heapify, sift_down


def heap_sort(items, descending=False):
    """Return the items as a sorted list."""
    heap = heapify(items)
    for end in range(len(heap) - 1, 0, -1):
        heap[0], heap[end] = heap[end], heap[0]
        sift_down(heap, 0, end)
    return heap if descending else heap[::-1]


def smallest(values, count=1):
    """Return the count smallest values in order."""
    if count < 0:
        raise ValueError("count must not be negative")
    return heap_sort(values)[:count]


def merge_sorted(*lists):
    """Merge sorted lists into one sorted list."""
    queue = PriorityQueue()
    for source in lists:
        for value in source:
            queue.push(value, value)
    merged = []
    for _ in range(len(queue.heap)):
        merged.append(queue.pop())
    return merged
