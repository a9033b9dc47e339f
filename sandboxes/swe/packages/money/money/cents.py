"""Amounts as text and as whole cents."""


def parse_cents(text):
    """Return the cents of a text such as '1,234.50' or '-3'."""
    plain = text.strip().replace(",", "")
    negative = plain.startswith("-")
    if negative:
        plain = plain[1:]
    whole, dot, part = plain.partition(".")
    if dot and len(part) != 2:
        raise ValueError("cents need two digits")
    if not whole.isdigit():
        raise ValueError(f"not an amount: {text}")
    cents = int(whole) * 100 + int(part or "0")
    return -cents if negative else cents


def show_cents(cents, sign=""):
    """Return an amount as text with two decimals."""
    minus = "-" if cents < 0 else ""
    euros, rest = divmod(abs(cents), 100)
    return f"{minus}{sign}{euros:,}.{rest:02d}"


def discount(cents, percent, least=0):
    """Return a price after a discount, rounded half up, not below a least."""
    if percent < 0 or percent > 100:
        raise ValueError("percent must be from 0 to 100")
    price = (cents * (100 - percent) + 50) // 100
    return max(price, least)
