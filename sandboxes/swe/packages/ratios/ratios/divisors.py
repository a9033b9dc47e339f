"""Common divisors and lowest terms."""


def gcd(first, second):
    """Return the greatest common divisor; gcd(0, 0) is 0."""
    larger, smaller = abs(first), abs(second)
    if smaller == 0:
        return larger
    return gcd(smaller, larger % smaller)


def lcm(*numbers):
    """Return the least common multiple of the numbers, 1 if there is none."""
    multiple = 1
    for number in numbers:
        if number == 0:
            return 0
        multiple = multiple * abs(number) // gcd(multiple, number)
    return multiple


def reduce(numerator, denominator=1):
    """Return the fraction in lowest terms with a positive denominator."""
    if denominator == 0:
        raise ZeroDivisionError("the denominator is zero")
    divisor = gcd(numerator, denominator)
    if denominator < 0:
        divisor = -divisor
    return numerator // divisor, denominator // divisor
