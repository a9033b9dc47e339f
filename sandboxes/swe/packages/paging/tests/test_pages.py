import pytest

from paging import item_range, page_count, page_items, page_of


def test_page_count():
    assert page_count(20) == 2
    assert page_count(21) == 3
    assert page_count(0) == 1
    assert page_count(1, 1) == 1
    with pytest.raises(ValueError):
        page_count(5, 0)


def test_page_items():
    items = list(range(7))
    assert page_items(items, 1, 3) == [0, 1, 2]
    assert page_items(items, 3, 3) == [6]
    assert page_items(items, 1) == items
    assert page_items(list(range(11)), 2) == [10]


def test_page_items_refuses():
    for page in (0, 4):
        with pytest.raises(ValueError):
            page_items(list(range(7)), page, 3)


def test_page_of():
    assert page_of(0) == 1
    assert page_of(9) == 1
    assert page_of(10) == 2
    assert page_of(7, 4) == 2
    with pytest.raises(ValueError):
        page_of(-1)


def test_item_range():
    assert item_range(1, 25) == (1, 10)
    assert item_range(3, 25) == (21, 25)
    assert item_range(2, 9, 4) == (5, 8)
    assert item_range(3, 9, 4) == (9, 9)
    assert item_range(4, 9, 4) == (0, 0)
