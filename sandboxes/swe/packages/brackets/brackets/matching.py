"""Find out which brackets belong together."""

PAIRS = {"(": ")", "[": "]", "{": "}"}


def first_error(text):
    """Return the index of the first bracket without partner, or -1."""
    stack = []
    for index, character in enumerate(text):
        if character in PAIRS:
            stack.append((index, PAIRS[character]))
        elif character in PAIRS.values():
            if not stack or stack[-1][1] != character:
                return index
            stack.pop()
    if stack:
        return stack[0][0]
    return -1


def is_balanced(text):
    """Tell whether every bracket of text has its partner."""
    return first_error(text) == -1


def partner(text, start):
    """Return the index of the bracket that closes the one at start."""
    if text[start] not in PAIRS:
        raise ValueError("no opening bracket there")
    level = 0
    for place in range(start, len(text)):
        if text[place] in PAIRS:
            level += 1
        elif text[place] in PAIRS.values():
            level -= 1
        if level == 0:
            return place
    raise ValueError("the bracket is never closed")
