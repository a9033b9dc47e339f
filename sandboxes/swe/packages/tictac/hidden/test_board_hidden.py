import pytest

from tictac import empty_board, is_full, lines, place


def test_board_sizes():
    assert empty_board(1) == [[" "]]
    assert empty_board() == [[" ", " ", " "]] * 3
    with pytest.raises(ValueError):
        empty_board(-1)
    with pytest.raises(ValueError):
        empty_board(0)


def test_rows_are_separate():
    board = empty_board(2)
    board[0][0] = "X"
    assert board[1][0] == " "


def test_place_twice():
    board = place(empty_board(3), 2, 1, "X")
    later = place(board, 1, 2, "O")
    assert later == [[" ", " ", " "], [" ", " ", "O"], [" ", "X", " "]]
    assert board[1][2] == " "
    assert place(empty_board(1), 0, 0, "O") == [["O"]]


def test_place_errors():
    board = [["X", " ", " "], [" ", " ", " "], [" ", " ", "O"]]
    for row, column in [(3, 0), (-1, 1), (1, 3), (1, -2), (2, 2)]:
        with pytest.raises(ValueError):
            place(board, row, column, "X")


def test_full():
    assert is_full([["X"]]) is True
    assert not is_full([[" "]])


def test_lines_of_three():
    found = lines([list("abc"), list("def"), list("ghi")])
    assert len(found) == 8
    assert found[1] == ["d", "e", "f"]
    assert found[5] == ["c", "f", "i"]
    assert found[6:] == [["a", "e", "i"], ["c", "e", "g"]]
