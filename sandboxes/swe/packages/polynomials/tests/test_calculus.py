from polynomials import derivative, integral, to_text


def test_derivative():
    assert derivative([5, 3, 2]) == [3, 4]
    assert derivative([1, 0, 0, 4]) == [0, 0, 12]
    assert derivative([7]) == []


def test_integral():
    assert integral([0, 2], 1, 3) == 8
    assert integral([1], 2, 5) == 3
    assert integral([1, 0, 3], 0, 2) == 10


def test_to_text():
    assert to_text([1, -1, 3]) == "3x^2 - x + 1"
    assert to_text([-2, 1]) == "x - 2"
    assert to_text([0, 0, -1]) == "-x^2"
    assert to_text([]) == "0"


def test_to_text_details():
    assert to_text([1]) == "1"
    assert to_text([-1, 0, 4], variable="y") == "4y^2 - 1"
    assert to_text([0, -5]) == "-5x"
    assert to_text([0, 2, 0, 1]) == "x^3 + 2x"
