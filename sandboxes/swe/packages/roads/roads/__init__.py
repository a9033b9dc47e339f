"""Breadth-first search over plain dicts."""

from roads.graph import add_road, degree, is_symmetric, make_graph
from roads.search import components, distances, path_between, within

__all__ = [
    "add_road",
    "components",
    "degree",
    "distances",
    "is_symmetric",
    "make_graph",
    "path_between",
    "within",
]
