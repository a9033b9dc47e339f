from lifegame import count_around, is_still, period, step

BAR = {(1, 0), (1, 1), (1, 2)}
BLOCK = {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_count_around():
    assert count_around(BAR, (1, 1)) == 2
    assert count_around(BAR, (0, 1)) == 3
    assert count_around(BLOCK, (0, 0)) == 3
    assert count_around(BLOCK, (5, 5)) == 0


def test_step():
    assert step(BAR) == {(0, 1), (1, 1), (2, 1)}
    assert step(BLOCK) == BLOCK
    assert step({(4, 4)}) == set()


def test_step_with_other_rules():
    assert step({(0, 0)}, born=(1,), stays=(0,)) == {
        (i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)
    }
    assert step(BAR, (), (2,)) == {(1, 1)}


def test_is_still():
    assert is_still(BLOCK)
    assert not is_still(BAR)


def test_period():
    assert period(BAR) == 2
    assert period(BLOCK) == 1
    assert period(BAR, limit=2) == 2
    assert period(BAR, limit=1) == 0
    assert period({(0, 0)}) == 0
