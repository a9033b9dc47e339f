"""How deeply the characters of a text are nested."""

OPENERS = "([{"
CLOSERS = ")]}"


def depths(text):
    """Return the depth of each character; brackets count as inside."""
    result = []
    level = 0
    for character in text:
        if character in OPENERS:
            level += 1
        result.append(level)
        if character in CLOSERS:
            level -= 1
    return result


def max_depth(text, default=0):
    """Return the greatest depth of text, or default for an empty text."""
    return max(depths(text), default=default)


def split_top(text, separator=","):
    """Split text at the separators that are in no bracket."""
    parts = []
    begin = 0
    for index, depth in enumerate(depths(text)):
        if text[index] == separator and depth == 0:
            parts.append(text[begin:index])
            begin = index + 1
    parts.append(text[begin:])
    return parts
