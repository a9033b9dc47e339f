from elevator import nearest_lift, sweep, travel


def test_sweeps():
    assert sweep(0, [7, 2, 5]) == [2, 5, 7]
    assert sweep(9, [7, 2, 5]) == [7, 5, 2]
    assert sweep(5, [7, 2, 5, 6, 4]) == [6, 7, 4, 2]
    assert sweep(5, [7, 2, 5, 6, 4], False) == [4, 2, 6, 7]


def test_ways():
    assert travel(5, [5]) == 0
    assert travel(5, [5], 3) == 3
    assert travel(1, [4, 0, 2]) == 9
    assert travel(1, [4, 0, 2], 1) == 12
    assert travel(7, [2]) == 5


def test_near():
    assert nearest_lift([8, 2, 5, 5], 4) == 2
    assert nearest_lift([8, 2, 5, 5], 4, [2]) == 3
    assert nearest_lift([8, 2, 5, 5], 4, [2, 3]) == 1
    assert nearest_lift([4, 4], 4) == 0
    assert nearest_lift([9, 1, 6], 7, busy=(0,)) == 2
    assert nearest_lift([3], 3, busy=(0,)) is None
