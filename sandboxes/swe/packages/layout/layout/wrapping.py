"""Break long texts into lines and make texts shorter."""


def wrap(text, width):
    """Return lines of at most width characters; long words stand alone."""
    if width < 1:
        raise ValueError("width must be positive")
    lines = []
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = (line + " " + word).strip()
    if line:
        lines.append(line.strip())
    return lines


def indent(rows, amount=4, hanging=False):
    """Put amount spaces before every row; hanging leaves the first as it is."""
    margin = " " * amount
    indented = []
    for index, row in enumerate(rows):
        if row == "" or (hanging and index == 0):
            indented.append(row)
        else:
            indented.append(margin + row)
    return indented


def shorten(text, limit, mark="..."):
    """Return text, cut to limit characters with mark at the end."""
    if len(text) <= limit:
        return text
    if limit < len(mark):
        raise ValueError("no room for the mark")
    kept = text[: limit - len(mark)]
    return kept.rstrip() + mark
