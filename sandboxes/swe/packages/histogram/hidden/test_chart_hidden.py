import pytest

from histogram import bar, chart, cumulative, tallest


def test_bars():
    assert bar(1, 4) == "*****"
    assert bar(3, 4, width=10) == "*******"
    assert bar(1, 30) == "*"
    assert bar(3, 3, sign="#", width=2) == "##"
    assert bar(0, 9, 9) == ""
    assert bar(0, 0, 5) == ""


def test_bad_bars():
    with pytest.raises(ValueError):
        bar(-1, 0)
    with pytest.raises(ValueError):
        bar(3, 2)


def test_charts():
    assert chart(["low", "up"], [8, 2], 4) == ["low |**** 8", " up |* 2"]
    assert chart(["p", "q"], [0, 0]) == ["p | 0", "q | 0"]
    assert chart(["w"], [3])[0].count("*") == 20
    with pytest.raises(ValueError):
        chart([], [1])
    with pytest.raises(ValueError, match="name"):
        chart(["a", "b", "c"], [1, 2])


def test_running():
    assert cumulative([]) == []
    assert cumulative([5, 5, -1]) == [5, 10, 9]
    assert cumulative([2, 3], 1) == [3, 6]


def test_greatest():
    assert tallest([0, 0]) == 0
    assert tallest([3, 9, 12]) == 2
