"""Read roman numerals as whole numbers."""

from roman.writing import numeral

DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def parse(text):
    """Return the number that a numeral stands for; raise ValueError if none."""
    if not text:
        raise ValueError("empty numeral")
    total = 0
    previous = 0
    for letter in reversed(text.upper()):
        value = DIGITS.get(letter)
        if value is None:
            raise ValueError("not a roman digit")
        if value < previous:
            total -= value
            continue
        total, previous = total + value, value
    return total


def is_roman(text, strict=True):
    """Tell whether text is a numeral; strict asks for the usual spelling."""
    try:
        number = parse(text)
    except ValueError:
        return False
    if not strict:
        return True
    return 1 <= number <= 3999 and numeral(number) == text.upper()
