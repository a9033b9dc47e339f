from lifegame import count_around, is_still, period, step

GLIDER = {(0, 1), (1, 2), (2, 0), (2, 1), (2, 2)}
BOAT = {(0, 0), (0, 1), (1, 0), (1, 2), (2, 1)}
TOAD = {(0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2)}


def test_neighbours():
    assert count_around(GLIDER, (1, 1)) == 5
    assert count_around(GLIDER, (2, 1)) == 3
    assert count_around(GLIDER, (1, 0)) == 3
    assert count_around(GLIDER, (3, 3)) == 1
    assert count_around(set(), (0, 0)) == 0


def test_glider():
    assert step(GLIDER) == {(1, 0), (1, 2), (2, 1), (2, 2), (3, 1)}
    moved = GLIDER
    for _ in range(4):
        moved = step(moved)
    assert moved == {(row + 1, column + 1) for row, column in GLIDER}


def test_rules_given():
    assert step({(0, 0), (0, 1)}, born=(2,), stays=()) == {
        (-1, 0),
        (-1, 1),
        (1, 0),
        (1, 1),
    }
    assert step(BOAT, (), (2, 3)) == BOAT
    assert step(BOAT, (), (3,)) == {(0, 1), (1, 0)}
    assert step(set()) == set()


def test_still():
    assert is_still(BOAT) is True
    assert is_still(set()) is True
    assert is_still(GLIDER) is False


def test_periods():
    assert period(TOAD) == 2
    assert period(TOAD, 2) == 2
    assert period(TOAD, 1) == 0
    assert period(BOAT, limit=1) == 1
    assert period(GLIDER, limit=8) == 0
