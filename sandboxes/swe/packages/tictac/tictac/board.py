"""A board is a list of rows, each a list of one-letter cells."""


def empty_board(size=3):
    """Return a square board of blank cells."""
    if size < 1:
        raise ValueError("size must be at least 1")
    return [[" "] * size for _ in range(size)]


def place(board, row, column, mark):
    """Return a copy of the board with a mark put in a free cell."""
    if row < 0 or row >= len(board):
        raise ValueError("no such row")
    if column < 0 or column >= len(board[row]):
        raise ValueError("no such column")
    if board[row][column] != " ":
        raise ValueError("cell is taken")
    changed = [list(cells) for cells in board]
    changed[row][column] = mark
    return changed


def is_full(board):
    """Tell whether no cell is blank."""
    for cells in board:
        if " " in cells:
            return False
    return True


def lines(board):
    """Return the rows, then the columns, then both diagonals."""
    size = len(board)
    found = [list(cells) for cells in board]
    for column in range(size):
        found.append([board[row][column] for row in range(size)])
    found.append([board[i][i] for i in range(size)])
    found.append([board[i][size - 1 - i] for i in range(size)])
    return found
