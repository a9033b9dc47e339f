import pytest
from bounds import overlap, span, step_values


def test_span():
    assert span([3, 1, 2, 5, 4]) == (1, 5)
    assert span([7]) == (7, 7)
    assert span([2, 9]) == (2, 9)
    assert span([1, 4, 2]) == (1, 4)


def test_span_empty():
    with pytest.raises(ValueError):
        span([])


def test_overlap():
    assert overlap((0, 5), (3, 9)) == (3, 5)
    assert overlap((4, 8), (1, 6)) == (4, 6)
    assert overlap((0, 2), (2, 4)) == (2, 2)
    assert overlap((0, 1), (2, 3)) is None


def test_step_values():
    assert step_values(1, 3) == [1, 2, 3]
    assert step_values(2, 9, 3) == [2, 5, 8]
    assert step_values(6, 7) == [6, 7]
    with pytest.raises(ValueError):
        step_values(1, 9, 0)
