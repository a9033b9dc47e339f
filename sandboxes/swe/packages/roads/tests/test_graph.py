import pytest

from roads import add_road, degree, is_symmetric, make_graph


def test_add_road():
    assert add_road({}, "a", "b") == {"a": ["b"], "b": ["a"]}
    assert add_road({}, "a", "b", one_way=True) == {"a": ["b"], "b": []}
    with pytest.raises(ValueError):
        add_road({}, "a", "a")


def test_add_road_once():
    graph = {"a": ["b"], "b": ["a"]}
    add_road(graph, "a", "b")
    assert graph == {"a": ["b"], "b": ["a"]}


def test_make_graph():
    assert make_graph([]) == {}
    assert make_graph([(1, 2), (3, 1)]) == {1: [2, 3], 2: [1], 3: [1]}
    assert make_graph([(1, 2), (2, 3)], True) == {1: [2], 2: [3], 3: []}


def test_degree():
    graph = make_graph([(1, 2), (1, 3)])
    assert degree(graph, 1) == 2
    assert degree(graph, 3) == 1
    assert degree(graph, 9) == 0


def test_is_symmetric():
    assert is_symmetric(make_graph([(1, 2), (2, 3)]))
    assert is_symmetric({1: [2], 2: []}) is False
    assert is_symmetric({1: [2]}) is False
    assert is_symmetric({})
