import pytest

from paging import item_range, page_count, page_items, page_of


def test_counts():
    assert [page_count(n, 4) for n in (-1, 0, 1, 4, 5, 8, 9)] == [1, 1, 1, 1, 2, 2, 3]
    assert page_count(101) == 11
    assert page_count(3, 1) == 3
    with pytest.raises(ValueError):
        page_count(5, -1)
    with pytest.raises(ValueError):
        page_count(5, 0)


def test_items():
    assert page_items("abcdefgh", 2, 3) == "def"
    assert page_items("abcdefgh", 3, 3) == "gh"
    assert page_items([], 1) == []
    assert page_items(list(range(25)), 2) == list(range(10, 20))


def test_items_errors():
    with pytest.raises(ValueError):
        page_items("abc", 2, 3)
    with pytest.raises(ValueError):
        page_items("abc", 0, 3)


def test_page_of_items():
    assert [page_of(i, 3) for i in (0, 2, 3, 5, 6)] == [1, 1, 2, 2, 3]
    assert page_of(19) == 2
    assert page_of(20) == 3
    with pytest.raises(ValueError):
        page_of(-1, 3)


def test_ranges():
    assert item_range(1, 0) == (0, 0)
    assert item_range(1, 1) == (1, 1)
    assert item_range(2, 20) == (11, 20)
    assert item_range(2, 14) == (11, 14)
    assert item_range(3, 100, 7) == (15, 21)
    assert item_range(3, 14, 7) == (0, 0)
