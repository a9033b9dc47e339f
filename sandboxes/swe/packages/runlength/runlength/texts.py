"""A compact text form: the count, then the character."""

from runlength.pairs import expand, find_runs


def encode(text, minimum=2):
    """Write runs as count and character; runs below minimum stay as they are."""
    if minimum < 1:
        raise ValueError("minimum must be at least 1")
    parts = []
    for letter, length in find_runs(text):
        if letter.isdigit():
            raise ValueError("digits cannot be encoded")
        if length < minimum:
            parts.append(letter * length)
        else:
            parts.append(str(length) + letter)
    return "".join(parts)


def decode(code):
    """Return the text that encode() made code from."""
    runs = []
    start = 0
    for end, symbol in enumerate(code):
        if symbol.isdigit():
            continue
        times = 1
        if end > start:
            times = int(code[start:end])
        runs.append((symbol, times))
        start = end + 1
    if start < len(code):
        raise ValueError("the code ends with a count")
    return "".join(expand(runs))
