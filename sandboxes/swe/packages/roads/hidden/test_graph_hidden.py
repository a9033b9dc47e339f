import pytest

from roads import add_road, degree, is_symmetric, make_graph


def test_roads():
    graph = {}
    assert add_road(graph, 5, 6) is graph
    add_road(graph, 6, 7, True)
    add_road(graph, 6, 7, True)
    assert graph == {5: [6], 6: [5, 7], 7: []}
    with pytest.raises(ValueError):
        add_road(graph, 7, 7)


def test_other_way_later():
    graph = add_road({}, "x", "y", one_way=True)
    assert add_road(graph, "y", "x", one_way=True) == {"x": ["y"], "y": ["x"]}
    assert add_road(graph, "y", "x") == {"x": ["y"], "y": ["x"]}


def test_graph_of_pairs():
    pairs = [("p", "q"), ("q", "r"), ("p", "r")]
    assert make_graph(pairs) == {"p": ["q", "r"], "q": ["p", "r"], "r": ["q", "p"]}
    assert make_graph(pairs, one_way=True) == {"p": ["q", "r"], "q": ["r"], "r": []}


def test_degrees():
    graph = make_graph([(1, 2), (2, 3), (2, 4)], True)
    assert [degree(graph, node) for node in (1, 2, 3)] == [1, 2, 0]
    assert degree({}, 1) == 0


def test_symmetry():
    assert is_symmetric({1: [], 2: []}) is True
    assert is_symmetric(make_graph([(1, 2)], True)) is False
    assert is_symmetric({1: [2, 3], 2: [1], 3: [1]}) is True
    assert is_symmetric({1: [2], 2: [1, 3], 3: []}) is False
    assert is_symmetric({1: [7]}) is False
