from tictac import is_draw, league_points, next_mark, winner

COLUMN = ["XO ", "XO ", " OX"]
FULL = ["XXO", "OOX", "XXO"]
LATE = ["XOX", "OXO", "OXX"]


def test_winner_by_column():
    assert winner(COLUMN) == "O"
    assert winner(LATE) == "X"
    assert winner(["   ", "   ", "   "]) is None


def test_draw():
    assert is_draw(FULL) is True
    assert is_draw(LATE) is False
    assert is_draw(["X ", "  "]) is False


def test_turns():
    assert next_mark(["XX", "O "]) == "O"
    assert next_mark(["XO", "OX"]) == "X"
    assert next_mark(["1 ", "  "], first="1", second="2") == "2"
    assert next_mark(["12", "  "], first="1", second="2") == "1"


def test_points():
    assert league_points([], "X") == 0
    assert league_points([COLUMN, FULL, FULL], "O") == 5
    assert league_points([LATE, LATE, COLUMN], "X") == 6
    assert league_points([LATE, FULL], "X", 10, 4) == 14
