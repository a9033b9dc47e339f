import pytest

from histogram import bar, chart, cumulative, tallest


def test_bar():
    assert bar(10, 10) == "*" * 20
    assert bar(1, 2, 7) == "***"
    assert bar(1, 100, 10) == "*"
    assert bar(2, 4, 4, "-") == "--"


def test_bar_of_nothing():
    assert bar(0, 0) == ""
    assert bar(0, 5) == ""
    for count, most in [(-1, 5), (6, 5)]:
        with pytest.raises(ValueError):
            bar(count, most)


def test_chart():
    assert chart(["a", "bcd"], [2, 4], 6) == ["  a |*** 2", "bcd |****** 4"]
    assert chart(["x"], [1]) == ["x |" + "*" * 20 + " 1"]
    assert chart([], []) == []
    with pytest.raises(ValueError):
        chart(["a", "b"], [1])


def test_cumulative():
    assert cumulative([1, 0, 3]) == [1, 1, 4]
    assert cumulative([1, 2], start=10) == [11, 13]


def test_tallest():
    assert tallest([1, 5, 2, 5]) == 1
    assert tallest([7]) == 0
