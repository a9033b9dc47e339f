"""Write whole numbers as roman numerals."""

DIGITS = [
    ["", "M", "MM", "MMM"],
    ["", "C", "CC", "CCC", "CD", "D", "DC", "DCC", "DCCC", "CM"],
    ["", "X", "XX", "XXX", "XL", "L", "LX", "LXX", "LXXX", "XC"],
    ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"],
]


def numeral(number):
    """Return the roman numeral of a number from 1 to 3999."""
    if number < 1 or number > 3999:
        raise ValueError("only 1 to 3999 can be written")
    text = ""
    rest = number
    for place, symbols in enumerate(DIGITS):
        unit = 10 ** (3 - place)
        digit = rest // unit
        text += symbols[digit]
        rest = rest % unit
    return text


def table(first, last):
    """Return a dict from each number in first..last to its numeral."""
    rows = {}
    for value in range(first, last + 1):
        rows[value] = numeral(value)
    return rows
