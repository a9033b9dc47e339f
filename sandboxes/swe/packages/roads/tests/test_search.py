import pytest

from roads import components, distances, make_graph, path_between, within

LINE = make_graph([("a", "b"), ("b", "c"), ("c", "d")])
RING = make_graph([(1, 2), (2, 3), (3, 4), (4, 5), (5, 1)])


def test_distances():
    assert distances(LINE, "a") == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert distances(RING, 1) == {1: 0, 2: 1, 5: 1, 3: 2, 4: 2}
    with pytest.raises(ValueError):
        distances(LINE, "z")


def test_within():
    assert within(LINE, "b", 1) == ["a", "b", "c"]
    assert within(RING, 3, 0) == [3]
    assert within(make_graph([(1, 2)], True), 2, 5) == [2]
    assert within(RING, 4, 2) == [1, 2, 3, 4, 5]


def test_path_between():
    assert path_between(LINE, "a", "d") == ["a", "b", "c", "d"]
    assert path_between(LINE, "c", "b") == ["c", "b"]
    assert path_between(RING, 1, 4) == [1, 5, 4]
    assert path_between(RING, 2, 2) == [2]


def test_no_path():
    assert path_between({1: [], 2: []}, 1, 2) is None
    assert path_between({1: [2], 2: []}, 2, 1) is None


def test_components():
    assert components(make_graph([(3, 1), (2, 4)])) == [[1, 3], [2, 4]]
    assert components(RING) == [[1, 2, 3, 4, 5]]
    assert components({}) == []
