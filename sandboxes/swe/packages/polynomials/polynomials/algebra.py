"""Sums, products and powers of polynomials."""

from polynomials.basics import trim


def add(left, right, factor=1):
    """Return left + factor * right."""
    size = max(len(left), len(right))
    total = [0] * size
    for place, number in enumerate(left):
        total[place] += number
    for index, value in enumerate(right):
        total[index] += factor * value
    return trim(total)


def multiply(first, second):
    """Return the product of two polynomials."""
    if not first or not second:
        return []
    product = [0] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            product[i + j] += a * b
    return trim(product)


def power(base, exponent):
    """Return base multiplied exponent times; [1] for exponent 0."""
    if exponent < 0:
        raise ValueError("the exponent is negative")
    result = [1]
    for _ in range(exponent):
        result = multiply(result, base)
    return result
