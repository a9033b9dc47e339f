import pytest

from clusters import Forest


def test_new_items():
    forest = Forest([1, 2, 1])
    assert forest.parent == {1: 1, 2: 2}
    assert forest.add(3) is True
    assert forest.add(3) is False
    assert forest.size == {1: 1, 2: 1, 3: 1}


def test_long_chain():
    forest = Forest()
    forest.parent = {1: 2, 2: 3, 3: 4, 4: 4}
    assert forest.find(1) == 4
    assert forest.parent == {1: 4, 2: 3, 3: 4, 4: 4}
    assert forest.find(4) == 4


def test_unknown():
    forest = Forest([1])
    with pytest.raises(KeyError):
        forest.union(1, 9)
    with pytest.raises(KeyError):
        forest.find(9)


def test_sizes():
    forest = Forest(range(6))
    assert forest.union(4, 5) == 4
    assert forest.union(0, 1) == 0
    assert forest.union(1, 5) == 0
    assert forest.union(2, 4) == 0
    assert forest.size == {0: 5, 3: 1}
    assert forest.union(5, 2) is None


def test_equal_sizes_keep_the_left():
    forest = Forest("pq")
    assert forest.union("q", "p") == "q"
    assert forest.find("p") == "q"
