import pytest
from bounds import lerp, progress, rescale


def test_lerp_points():
    assert lerp(2, 10, 0.25) == 4
    assert lerp(-4, 4, 0.5) == 0


def test_rescale_shifted():
    assert rescale(15, (10, 20), (100, 300)) == 200
    assert rescale(8, (4, 8), (1, 3)) == 3
    with pytest.raises(ValueError):
        rescale(0, (5, 5), (1, 2))


def test_progress_numbers():
    assert progress(300, 800, digits=1) == 37.5
    assert progress(5, 6) == 83
    assert progress(1, 1) == 100


def test_progress_guards():
    assert progress(1, -2) == 100
    assert progress(3, 0) == 100
    assert progress(301, 300, 1) == 100
    assert progress(0, 1) == 0
    assert progress(7, 4) == 100
