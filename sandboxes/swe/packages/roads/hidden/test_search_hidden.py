import pytest

from roads import components, distances, make_graph, path_between, within

STAR = make_graph([(0, 1), (0, 2), (0, 3), (3, 4), (4, 5)])
MAP = make_graph([("a", "b"), ("b", "d"), ("a", "c"), ("c", "d"), ("d", "e")], True)


def test_steps():
    assert distances(STAR, 1) == {1: 0, 0: 1, 2: 2, 3: 2, 4: 3, 5: 4}
    assert distances(MAP, "a") == {"a": 0, "b": 1, "c": 1, "d": 2, "e": 3}
    assert distances(MAP, "e") == {"e": 0}
    with pytest.raises(ValueError):
        distances({}, 1)


def test_near():
    assert within(STAR, 5, 2) == [3, 4, 5]
    assert within(STAR, 0, 1) == [0, 1, 2, 3]
    assert within(MAP, "c", 9) == ["c", "d", "e"]


def test_paths():
    assert path_between(STAR, 2, 5) == [2, 0, 3, 4, 5]
    assert path_between(STAR, 0, 3) == [0, 3]
    assert path_between(MAP, "a", "e") == ["a", "b", "d", "e"]
    assert path_between(MAP, "e", "e") == ["e"]
    assert path_between(MAP, "e", "a") is None
    with pytest.raises(ValueError):
        path_between(MAP, "x", "a")


def test_groups():
    graph = make_graph([(9, 8), (1, 2), (2, 3)])
    graph[5] = []
    assert components(graph) == [[8, 9], [1, 2, 3], [5]]
    assert components({4: []}) == [[4]]
