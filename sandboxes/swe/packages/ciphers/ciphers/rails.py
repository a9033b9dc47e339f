"""The rail fence: text written in a zigzag over several rows."""


def rail_rows(text, rails):
    """Return the row of each character of the zigzag, from 0 to rails - 1."""
    if rails < 1:
        raise ValueError("at least one rail is needed")
    rows = []
    row = 0
    step = 1
    for _ in text:
        rows.append(row)
        if row + step < 0 or row + step >= rails:
            step = -step
        if rails > 1:
            row += step
    return rows


def fence(text, rails=3):
    """Read the zigzag of text row by row."""
    lines = [""] * rails
    for index, target in enumerate(rail_rows(text, rails)):
        lines[target] += text[index]
    return "".join(lines)
