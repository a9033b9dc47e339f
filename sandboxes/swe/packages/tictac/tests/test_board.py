import pytest

from tictac import empty_board, is_full, lines, place


def test_empty_board():
    assert empty_board(2) == [[" ", " "], [" ", " "]]
    assert len(empty_board()) == 3
    assert empty_board(1) == [[" "]]
    with pytest.raises(ValueError):
        empty_board(0)


def test_place_keeps_the_old_board():
    old = empty_board(2)
    assert place(old, 0, 1, "X") == [[" ", "X"], [" ", " "]]
    assert old == empty_board(2)


def test_place_corner():
    assert place(empty_board(2), 0, 0, "O")[0][0] == "O"
    assert place(empty_board(2), 1, 1, "O")[1] == [" ", "O"]


def test_place_refuses():
    for row, column in [(-1, 0), (2, 0), (0, -1), (0, 2)]:
        with pytest.raises(ValueError):
            place(empty_board(2), row, column, "X")
    with pytest.raises(ValueError):
        place([["X", " "], [" ", " "]], 0, 0, "O")


def test_is_full():
    assert is_full([["X", "O"], ["O", "X"]])
    assert is_full([["X", "O"], ["O", " "]]) is False


def test_lines():
    board = [["a", "b"], ["c", "d"]]
    assert lines(board)[:4] == [["a", "b"], ["c", "d"], ["a", "c"], ["b", "d"]]
    assert lines(board)[4:] == [["a", "d"], ["b", "c"]]
