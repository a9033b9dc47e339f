"""The longest common subsequence of two lists."""


def length_table(left, right):
    """Return the common lengths of all beginnings of two lists."""
    table = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i, item in enumerate(left):
        for j, other in enumerate(right):
            if item == other:
                table[i + 1][j + 1] = table[i][j] + 1
            else:
                table[i + 1][j + 1] = max(table[i][j + 1], table[i + 1][j])
    return table


def common_length(left, right):
    """Return the length of the longest common subsequence."""
    return length_table(left, right)[len(left)][len(right)]


def common_part(left, right):
    """Return a longest common subsequence; ties go to early items of left."""
    part = []
    table = length_table(left, right)
    row, column = len(left), len(right)
    for _ in range(len(left) + len(right)):
        if row == 0 or column == 0:
            break
        if left[row - 1] == right[column - 1]:
            row, column = row - 1, column - 1
            part.append(left[row])
        elif table[row - 1][column] >= table[row][column - 1]:
            row -= 1
        else:
            column -= 1
    return part[::-1]


def similarity(left, right):
    """Return from 0 to 1 how much two lists have in common."""
    total = len(left) + len(right)
    if total == 0:
        return 1.0
    return 2 * common_length(left, right) / total
