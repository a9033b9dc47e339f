"""A graph is a dict from a node to the list of its neighbours."""


def add_road(graph, start, end, one_way=False):
    """Add a road to a graph; a road is kept only once."""
    if start == end:
        raise ValueError("a road needs two towns")
    starts = graph.setdefault(start, [])
    ends = graph.setdefault(end, [])
    if end not in starts:
        starts.append(end)
    if not one_way and start not in ends:
        ends.append(start)
    return graph


def make_graph(pairs, one_way=False):
    """Return the graph of a list of pairs of nodes."""
    towns = {}
    for start, end in pairs:
        add_road(towns, start, end, one_way)
    return towns


def degree(graph, node):
    """Return how many roads leave a node; an unknown node has none."""
    try:
        return len(graph[node])
    except KeyError:
        return 0


def is_symmetric(graph):
    """Tell whether every road can be taken both ways."""
    for node, neighbours in graph.items():
        for other in neighbours:
            if node not in graph.get(other, []):
                return False
    return True
