from polynomials import degree, evaluate, trim


def test_trimmed():
    assert trim([]) == []
    assert trim([0, 0, 2, 0]) == [0, 0, 2]
    assert trim([1, 0, 1]) == [1, 0, 1]
    assert trim([-4]) == [-4]


def test_degrees():
    assert degree([0, 0, 0, 9]) == 3
    assert degree([]) == -1
    assert degree([0, 0], None) is None
    assert degree([3, 0]) == 0


def test_values():
    assert evaluate([0, 0, 1], 5) == 25
    assert evaluate([1, -1], 4) == -3
    assert evaluate([6, 5, 4], 0) == 6
    assert evaluate([1, 1, 1], 10) == 111
