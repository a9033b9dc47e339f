"""Breadth-first search, nearest nodes first."""


def distances(graph, start):
    """Return how many roads away every reachable node is."""
    if start not in graph:
        raise ValueError("no such node")
    found = {start: 0}
    queue = [start]
    for node in queue:
        for other in graph[node]:
            if other not in found:
                found[other] = found[node] + 1
                queue.append(other)
    return found


def within(graph, origin, limit):
    """Return the sorted nodes at most a limit of roads away."""
    steps = distances(graph, origin)
    return sorted(town for town in steps if steps[town] <= limit)


def path_between(graph, first, last):
    """Return the nodes of a shortest path, or None if there is none."""
    away = distances(graph, first)
    if last not in away:
        return None
    path = [last]
    for step in range(away[last] - 1, -1, -1):
        for node, neighbours in graph.items():
            if away.get(node) == step and path[-1] in neighbours:
                path.append(node)
                break
    return path[::-1]


def components(graph):
    """Return the sorted groups of nodes that hang together."""
    groups = []
    for node in graph:
        if not any(node in group for group in groups):
            groups.append(sorted(distances(graph, node)))
    return groups
