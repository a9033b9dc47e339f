"""Prepare texts for the check, and complete them."""

CLOSING = {"(": ")", "[": "]", "{": "}"}


def missing_closers(text):
    """Return the closing brackets that have to follow text."""
    expected = []
    for symbol in text:
        if symbol in CLOSING:
            expected.append(CLOSING[symbol])
        elif symbol in CLOSING.values():
            if not expected or expected.pop() != symbol:
                raise ValueError("a bracket is closed that is not open")
    expected.reverse()
    return "".join(expected)


def strip_quotes(text, quote='"'):
    """Return text without its quoted parts and their quotes."""
    kept = ""
    inside = False
    for letter in text:
        if letter == quote:
            inside = not inside
        elif not inside:
            kept += letter
    if inside:
        raise ValueError("a quote is never closed")
    return kept
