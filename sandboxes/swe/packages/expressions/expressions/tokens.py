"""Split an expression into tokens and look up what they stand for."""

SYMBOLS = "+-*/^()"


def is_number(token):
    """Tell whether a token is a number such as 12 or 0.5."""
    if token.count(".") > 1:
        return False
    return token.replace(".", "").isdigit()


def value_of(name, names):
    """Return the value of a number or of a name from the dict names."""
    if is_number(name):
        return float(name)
    try:
        return names[name]
    except KeyError:
        raise ValueError("unknown name") from None


def tokenize(text):
    """Return numbers, names and symbols as a list of strings."""
    tokens = []
    start = 0
    for index, character in enumerate(text + " "):
        if character.isalnum() or character == ".":
            continue
        if index > start:
            tokens.append(text[start:index])
        if character in SYMBOLS:
            tokens.append(character)
        elif not character.isspace():
            raise ValueError("unexpected character")
        start = index + 1
    return tokens
