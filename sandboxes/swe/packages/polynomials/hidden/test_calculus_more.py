from polynomials import derivative, integral, to_text


def test_slopes():
    assert derivative([]) == []
    assert derivative([9, 8, 7, 6]) == [8, 14, 18]
    assert derivative([0, 5]) == [5]


def test_areas():
    assert integral([4], 1, 2) == 4
    assert integral([0, 0, 3], 1, 2) == 7
    assert integral([2, 2], 0, 1) == 3
    assert integral([1], 5, 2) == -3


def test_written():
    assert to_text([0]) == "0"
    assert to_text([-1]) == "-1"
    assert to_text([0, 1]) == "x"
    assert to_text([5, 0, 2]) == "2x^2 + 5"


def test_written_signs():
    assert to_text([-1, -1, -1]) == "-x^2 - x - 1"
    assert to_text([1, 1, 1], "t") == "t^2 + t + 1"
    assert to_text([7, -3]) == "-3x + 7"
    assert to_text([0, 0, 0, -2]) == "-2x^3"
