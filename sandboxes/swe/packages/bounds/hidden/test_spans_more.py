import pytest
from bounds import overlap, span, step_values


def test_span_orders():
    assert span([5, 4, 9, 1]) == (1, 9)
    assert span([8, 2]) == (2, 8)
    assert span([1, 6]) == (1, 6)
    assert span([3, 7, 5]) == (3, 7)
    with pytest.raises(ValueError):
        span([])


def test_overlap_pairs():
    assert overlap((10, 20), (12, 15)) == (12, 15)
    assert overlap((1, 9), (3, 4)) == (3, 4)
    assert overlap((3, 5), (5, 7)) == (5, 5)
    assert overlap((6, 7), (1, 2)) is None


def test_step_values_ends():
    assert step_values(0, 10, 5) == [0, 5, 10]
    assert step_values(4, 6) == [4, 5, 6]
    assert step_values(5, 4) == []
    with pytest.raises(ValueError):
        step_values(0, 5, -1)


def test_step_zero():
    with pytest.raises(ValueError):
        step_values(3, 4, 0)
