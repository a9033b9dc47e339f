"""Bring single lines to a width."""


def pad(text, width, fill=" ", left=False):
    """Add fill after text, or before it, until it is width characters long."""
    if len(fill) != 1:
        raise ValueError("fill must be one character")
    missing = max(0, width - len(text))
    if left:
        return fill * missing + text
    return text + fill * missing


def align(line, size, side="left"):
    """Align line to the left, the right or the center of size characters."""
    if side == "left":
        return pad(line, size)
    if side == "right":
        return pad(line, size, left=True)
    if side != "center":
        raise ValueError("unknown side")
    before = (size - len(line)) // 2
    return pad(" " * before + line, size)


def justify(words, total):
    """Join words with spaces so that they fill total characters."""
    gaps = len(words) - 1
    if gaps < 1:
        return "".join(words)
    spaces = total - sum(len(word) for word in words)
    even, extra = divmod(max(spaces, gaps), gaps)
    result = words[0]
    for index, word in enumerate(words[1:]):
        share = even + 1 if index < extra else even
        result += " " * share + word
    return result
