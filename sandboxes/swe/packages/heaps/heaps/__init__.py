"""Priority queues and sorting on a binary heap."""

from heaps.queue import PriorityQueue
from heaps.sifting import heapify, is_heap, sift_down, sift_up
from heaps.sorting import heap_sort, merge_sorted, smallest

__all__ = [
    "PriorityQueue",
    "heap_sort",
    "heapify",
    "is_heap",
    "merge_sorted",
    "sift_down",
    "sift_up",
    "smallest",
]
