import pytest
from bounds import lerp, progress, rescale


def test_lerp():
    assert lerp(10, 20, 0.5) == 15
    assert lerp(4, 8, 0) == 4
    assert lerp(4, 8, 1) == 8


def test_rescale():
    assert rescale(5, (0, 10), (0, 100)) == 50
    assert rescale(3, (2, 6), (10, 30)) == 15


def test_rescale_empty():
    with pytest.raises(ValueError):
        rescale(1, (2, 2), (0, 1))


def test_progress():
    assert progress(150, 600) == 25
    assert progress(1, 3, digits=1) == 33.3
    assert progress(2, 3) == 67


def test_progress_limits():
    assert progress(201, 200, digits=1) == 100
    assert progress(0, 1) == 0
    assert progress(9, 5) == 100
    assert progress(-1, 0) == 100
    assert progress(3, -4) == 100
    assert progress(1, 1) == 100
