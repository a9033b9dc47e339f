"""Questions about pairs, answered by a forest."""

from clusters.forest import Forest


def friend_circles(people, pairs):
    """Return the sorted circles of people who know each other."""
    forest = Forest(people)
    for one, other in pairs:
        forest.union(one, other)
    circles = {}
    for person in people:
        root = forest.find(person)
        circles.setdefault(root, []).append(person)
    return sorted(sorted(circle) for circle in circles.values())


def has_cycle(edges):
    """Tell whether some edge joins two nodes that were joined before."""
    joined = Forest()
    for start, end in edges:
        joined.add(start)
        joined.add(end)
        if joined.union(start, end) is None:
            return True
    return False


def merges_needed(people, pairs, circles_wanted=1):
    """Return how many more merges leave the wanted number of circles."""
    if circles_wanted < 1:
        raise ValueError("at least one circle must remain")
    count = len(friend_circles(people, pairs))
    return max(0, count - circles_wanted)
