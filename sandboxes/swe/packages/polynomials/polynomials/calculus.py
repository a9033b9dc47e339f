"""Derivatives, integrals and the written form."""

from polynomials.basics import evaluate


def derivative(poly):
    """Return the derivative."""
    slopes = []
    for exponent, coefficient in enumerate(poly):
        if exponent > 0:
            slopes.append(exponent * coefficient)
    return slopes


def integral(poly, low, high):
    """Return the area below the polynomial between low and high."""
    area = [0]
    for exponent, coefficient in enumerate(poly, start=1):
        area.append(coefficient / exponent)
    return evaluate(area, high) - evaluate(area, low)


def to_text(poly, variable="x"):
    """Write the polynomial, highest power first, such as 3x^2 - x + 1."""
    text = ""
    for place in range(len(poly) - 1, -1, -1):
        number = poly[place]
        if number == 0:
            continue
        digits = "" if abs(number) == 1 and place > 0 else str(abs(number))
        symbol = ["", variable][place] if place < 2 else f"{variable}^{place}"
        if text:
            text += " - " if number < 0 else " + "
        elif number < 0:
            text = "-"
        text += digits + symbol
    return text or "0"
