"""Every group is a tree; its root speaks for the group."""


class Forest:
    """Keeps a parent for every item and a size for every root."""

    def __init__(self, items=()):
        self.parent = {}
        self.size = {}
        for item in items:
            self.add(item)

    def add(self, item):
        """Add an item as a group of its own; tell whether it was new."""
        if item in self.parent:
            return False
        self.parent[item] = item
        self.size[item] = 1
        return True

    def find(self, item):
        """Return the root of the group of an item."""
        root = item
        for _ in range(len(self.parent)):
            root = self.parent[root]
        self.parent[item] = root
        return root

    def union(self, left, right):
        """Merge two groups; tell whether they were two."""
        big = self.find(left)
        small = self.find(right)
        if big == small:
            return None
        if self.size[big] < self.size[small]:
            big, small = small, big
        self.parent[small] = big
        self.size[big] += self.size.pop(small)
        return big
