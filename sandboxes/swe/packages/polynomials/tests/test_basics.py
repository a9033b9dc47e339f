from polynomials import degree, evaluate, trim


def test_trim():
    assert trim([1, 2, 0, 0]) == [1, 2]
    assert trim([0, 3]) == [0, 3]
    assert trim([0, 0]) == []
    assert trim([5]) == [5]


def test_degree():
    assert degree([1, 0, 4, 0]) == 2
    assert degree([7]) == 0
    assert degree([0, 0]) == -1
    assert degree([0]) == -1
    assert degree([], zero=None) is None


def test_evaluate():
    assert evaluate([1, 2, 3], 2) == 17
    assert evaluate([4], 9) == 4
    assert evaluate([], 3) == 0
