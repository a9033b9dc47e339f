from elevator import nearest_lift, sweep, travel


def test_sweep():
    assert sweep(3, [1, 5, 2, 4]) == [4, 5, 2, 1]
    assert sweep(3, [1, 5, 2, 4], upward=False) == [2, 1, 4, 5]
    assert sweep(3, [3, 1]) == [1]
    assert sweep(3, []) == []


def test_travel():
    assert travel(3, [4, 5, 2, 1]) == 6
    assert travel(0, [5], 2) == 7
    assert travel(2, [1, 3], open_time=10) == 23
    assert travel(2, []) == 0


def test_nearest_lift():
    assert nearest_lift([0, 9, 4], 5) == 2
    assert nearest_lift([20, 9, 13, 1], 10) == 1
    assert nearest_lift([0, 9, 4], 5, busy=[2]) == 1
    assert nearest_lift([3, 1], 2) == 0
    assert nearest_lift([6], 1) == 0


def test_no_lift():
    assert nearest_lift([], 1) is None
    assert nearest_lift([1, 2], 1, (0, 1)) is None
