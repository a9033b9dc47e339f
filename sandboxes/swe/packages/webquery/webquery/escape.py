"""Escapes of signs that mean something in an address."""

SAFE = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."


def encode(text):
    """Return a text with spaces as '+' and other signs as '%XX'."""
    signs = []
    for sign in text:
        if sign in SAFE:
            signs.append(sign)
        elif sign == " ":
            signs.append("+")
        else:
            signs.append(f"%{ord(sign):02X}")
    return "".join(signs)


def decode(text):
    """Return a text with its escapes resolved."""
    parts = text.replace("+", " ").split("%")
    plain = parts[0]
    for part in parts[1:]:
        if len(part) < 2:
            raise ValueError("an escape is cut off")
        plain += chr(int(part[:2], 16)) + part[2:]
    return plain
