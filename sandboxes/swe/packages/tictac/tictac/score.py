"""Who has won, whose turn it is, and what a series is worth."""

from tictac.board import is_full, lines


def winner(board):
    """Return the mark that fills a whole line, or None."""
    for line in lines(board):
        mark = line[0]
        if mark != " " and line.count(mark) == len(line):
            return mark
    return None


def is_draw(board):
    """Tell whether the board is full and nobody has won."""
    return is_full(board) and winner(board) is None


def next_mark(board, first="X", second="O"):
    """Return the mark whose turn it is."""
    first_count = sum(row.count(first) for row in board)
    second_count = sum(row.count(second) for row in board)
    if first_count > second_count:
        return second
    return first


def league_points(boards, player, win=3, draw=1):
    """Return the points a player collects over finished boards."""
    points = 0
    for board in boards:
        if winner(board) == player:
            points += win
        elif is_draw(board):
            points += draw
    return points
