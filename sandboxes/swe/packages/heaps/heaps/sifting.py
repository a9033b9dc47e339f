"""The two moves that keep a list a heap, smallest item first."""


def sift_up(heap, index):
    """Move the item at index up to its place and return that place."""
    if index == 0:
        return 0
    parent = (index - 1) // 2
    if heap[index] >= heap[parent]:
        return index
    heap[index], heap[parent] = heap[parent], heap[index]
    return sift_up(heap, parent)


def sift_down(heap, place, size=None):
    """Move the item at place down among the first size items."""
    end = len(heap) if size is None else size
    least = place
    for child in (2 * place + 1, 2 * place + 2):
        if child < end and heap[child] < heap[least]:
            least = child
    if least == place:
        return place
    heap[place], heap[least] = heap[least], heap[place]
    return sift_down(heap, least, end)


def heapify(items):
    """Return a new list with the items in heap order."""
    result = list(items)
    for start in range(len(result) // 2 - 1, -1, -1):
        sift_down(result, start)
    return result


def is_heap(items):
    """Tell whether no item is smaller than its parent."""
    for position in range(1, len(items)):
        if items[position] < items[(position - 1) // 2]:
            return False
    return True
