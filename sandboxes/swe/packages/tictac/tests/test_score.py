from tictac import is_draw, league_points, next_mark, winner

ROW = ["XXX", "OO ", "   "]
DRAW = ["XOX", "XOO", "OXX"]
DIAGONAL = ["OXX", "XO ", "  O"]
OPEN = ["XO ", "   ", "   "]


def test_winner():
    assert winner(ROW) == "X"
    assert winner(DIAGONAL) == "O"
    assert winner(OPEN) is None
    assert winner(DRAW) is None


def test_is_draw():
    assert is_draw(DRAW)
    assert not is_draw(OPEN)
    assert not is_draw(["XXX", "OOX", "XOO"])


def test_next_mark():
    assert next_mark(["   ", "   ", "   "]) == "X"
    assert next_mark(["X  ", "   ", "   "]) == "O"
    assert next_mark(OPEN) == "X"
    assert next_mark(["a ", "  "], "a", "b") == "b"


def test_league_points():
    assert league_points([ROW, DRAW, DIAGONAL], "X") == 4
    assert league_points([DIAGONAL, DIAGONAL], "O") == 6
    assert league_points([ROW, DRAW], "X", win=2, draw=5) == 7
    assert league_points([OPEN, ROW], "O") == 0
