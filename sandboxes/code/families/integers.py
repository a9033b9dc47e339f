"""Functions of one or two integers."""

from __future__ import annotations

from random import Random

from sandboxes.code.problem import Arguments, Row, family

__all__ = ["FAMILIES"]


def _natural(rng: Random) -> Arguments:
    return (rng.randint(0, 10 ** rng.randint(1, 6)),)


def _counting(rng: Random) -> Arguments:
    return (rng.randint(1, rng.choice((12, 60, 200))),)


def _pair(rng: Random) -> Arguments:
    factor = rng.randint(1, 6)
    return factor * rng.randint(1, 40), factor * rng.randint(1, 40)


_DIGITS = (
    Row("digit_sum", "the sum of the digits of n", "sum(int(digit) for digit in str(n))"),
    Row(
        "digit_product",
        "the product of the digits of n",
        """
product = 1
for digit in str(n):
    product *= int(digit)
return product
""",
    ),
    Row(
        "digital_root",
        "the sum of the digits, of that again and so on until one digit is left",
        "n and 1 + (n - 1) % 9",
    ),
    Row("largest_digit", "the largest digit of n", "int(max(str(n)))"),
    Row("smallest_digit", "the smallest digit of n", "int(min(str(n)))"),
    Row("reversed_digits", "the number with the digits of n in reverse order", "int(str(n)[::-1])"),
    Row("even_digits", "how many digits of n are even", "sum(digit in '02468' for digit in str(n))"),
    Row(
        "without_zeros",
        "the number that is left without the digits 0 of n; 0 if none is left",
        "int(str(n).replace('0', '') or 0)",
    ),
    Row(
        "digit_squares",
        "the sum of the squares of the digits of n",
        "sum(int(digit) ** 2 for digit in str(n))",
    ),
    Row("binary_ones", "how many digits 1 the binary form of n has", "bin(n).count('1')"),
    Row(
        "sorted_digits", "the number with the digits of n in ascending order", "int(''.join(sorted(str(n))))"
    ),
)

_LARGEST_FACTOR = """
largest, d = 1, 2
while n > 1:
    if n % d == 0:
        largest, n = d, n // d
    else:
        d += 1
return largest
"""
_NEXT_PRIME = """
n += 1
while n < 2 or any(n % d == 0 for d in range(2, n)):
    n += 1
return n
"""
_COLLATZ = """
steps = 0
while n > 1:
    n = n // 2 if n % 2 == 0 else 3 * n + 1
    steps += 1
return steps
"""
_FIBONACCI = """
one, two = 0, 1
for _ in range(n):
    one, two = two, one + two
return one
"""
_GCD = "from math import gcd\n"

_THEORY = (
    Row("count_divisors", "how many positive integers divide n", "sum(n % d == 0 for d in range(1, n + 1))"),
    Row(
        "sum_proper_divisors",
        "the sum of the positive divisors of n other than n",
        "sum(d for d in range(1, n) if n % d == 0)",
    ),
    Row("largest_prime_factor", "the largest prime number that divides n; 1 for n = 1", _LARGEST_FACTOR),
    Row("next_prime", "the smallest prime number greater than n", _NEXT_PRIME),
    Row(
        "collatz_steps",
        "how many steps lead from n to 1 if an even n becomes n / 2 and an odd n becomes 3 n + 1",
        _COLLATZ,
    ),
    Row(
        "fibonacci",
        "the Fibonacci number n, where numbers 1 and 2 are 1 and each later one is the sum of the two before",
        _FIBONACCI,
    ),
    Row("triangle", "the sum of the integers from 1 to n", "n * (n + 1) // 2"),
    Row("integer_root", "the largest integer whose square is not greater than n", "int(n**0.5)"),
    Row(
        "count_primes",
        "how many prime numbers are not greater than n",
        "sum(all(m % d for d in range(2, m)) for m in range(2, n + 1))",
    ),
    Row(
        "count_coprime",
        "how many integers from 1 to n have no divisor but 1 in common with n",
        f"{_GCD}return sum(gcd(m, n) == 1 for m in range(1, n + 1))",
    ),
    Row(
        "count_odd_divisors",
        "how many odd positive integers divide n",
        "sum(n % d == 0 for d in range(1, n + 1, 2))",
    ),
)

_CARRIES = """
count = carry = 0
while a or b:
    carry = (a % 10 + b % 10 + carry) // 10
    count += carry
    a, b = a // 10, b // 10
return count
"""

_PAIRS = (
    Row("common_divisor", "the greatest common divisor of a and b", f"{_GCD}return gcd(a, b)"),
    Row("common_multiple", "the least common multiple of a and b", f"{_GCD}return a * b // gcd(a, b)"),
    Row(
        "count_common_divisors",
        "how many positive integers divide both a and b",
        "sum(a % d == 0 == b % d for d in range(1, a + 1))",
    ),
    Row(
        "sum_between",
        "the sum of the integers from the smaller of a and b to the larger, both included",
        "sum(range(min(a, b), max(a, b) + 1))",
    ),
    Row("count_multiples", "how many positive multiples of b are not greater than a", "a // b"),
    Row("divide_up", "the smallest integer that is not less than a / b", "-(-a // b)"),
    Row("bit_distance", "in how many places the binary forms of a and b differ", "bin(a ^ b).count('1')"),
    Row("count_carries", "how many carries occur when a and b are added digit by digit in decimal", _CARRIES),
    Row("join_digits", "the number with the digits of a followed by those of b", "int(f'{a}{b}')"),
    Row("power_rest", "the remainder of a to the power of b divided by 97", "pow(a, b, 97)"),
    Row(
        "count_common_digits",
        "how many different digits occur both in a and in b",
        "len(set(str(a)) & set(str(b)))",
    ),
)

FAMILIES = (
    family("digits", "(n: int) -> int", _natural, ((0,), (9,), (10,), (1002003,)), _DIGITS),
    family("number_theory", "(n: int) -> int", _counting, ((1,), (2,), (49,), (64,)), _THEORY),
    family(
        "two_numbers",
        "(a: int, b: int) -> int",
        _pair,
        ((1, 1), (12, 18), (18, 12), (95, 5), (7, 13)),
        _PAIRS,
    ),
)
