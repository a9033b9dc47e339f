"""The families of questions: a seeded draw and a level from 1 to 5 give a question and its exact answer.

`TRAINED` are those of the splits train and held_out, `UNSEEN` those of held_out_family alone. Each computes its answer
from the numbers it drew, never from the text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from random import Random

from sandboxes.math.problem import MathProblem
from sandboxes.math.stories import word_problem

__all__ = ["LEVELS", "TRAINED", "UNSEEN", "Family", "draw"]

LEVELS = (1, 5)
"""Easiest and hardest."""
Family = Callable[[Random, int], MathProblem]

_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31)


def draw(family: str, rng: Random, level: int) -> MathProblem:
    """Return a question of the family."""
    return {**TRAINED, **UNSEEN}[family](rng, level)


def arithmetic(rng: Random, level: int) -> MathProblem:
    """Integers with +, - and, from level 2, *; from level 3 precedence matters, from level 4 there are parentheses."""
    most = (9, 12, 20, 20, 50)[level - 1]
    terms, value = _sum(rng, (2, 2, 3, 2, 3)[level - 1], most, products=level >= 2)
    if level >= 4:
        factor, rest = rng.randint(2, 12), rng.randint(0, most)
        terms, value = ["(", *terms, ")", "*", str(factor), "-", str(rest)], value * factor - rest
    text = " ".join(terms).replace("( ", "(").replace(" )", ")")
    return MathProblem("arithmetic", f"Compute {text}.", f"{''.join(terms)}=", (Fraction(value),))


def _sum(rng: Random, count: int, most: int, *, products: bool) -> tuple[list[str], int]:
    """Return `count` numbers joined by operators, and the value with * before + and -."""
    terms, total, product, sign = [], 0, 0, 1
    for place in range(count):
        number = rng.randint(0, most)
        operator = rng.choice("+-*" if products else "+-")
        if place == 0:
            product = number
        elif operator == "*":
            terms.append(operator)
            product *= number
        else:
            terms.append(operator)
            total, product, sign = total + sign * product, number, 1 if operator == "+" else -1
        terms.append(str(number))
    return terms, total + sign * product


def linear(rng: Random, level: int) -> MathProblem:
    """One equation in x; the unknown is on both sides at level 4, and x may be a fraction at level 5."""
    most = (9, 9, 20, 20, 20)[level - 1]
    x = Fraction(rng.randint(0 if level < 3 else -most, most))
    a = 1 if level == 1 else _nonzero(rng, 9, negative=level >= 3)
    b = _nonzero(rng, most, negative=level >= 3)
    c = _nonzero(rng, 9, other=a) if level >= 4 else 0
    if level == 5:
        x = Fraction(rng.randint(-most, most), abs(a - c))
    d = a * x + b - c * x
    left, right = f"{_term(a, 'x')}{_signed(b)}", f"{_term(c, 'x')}{_signed(int(d))}" if c else str(d)
    return MathProblem(
        "linear", f"Solve {_spaced(left)} = {_spaced(right)} for x.", f"{left}={right}", (x,), ("x",)
    )


def system(rng: Random, level: int) -> MathProblem:
    """Two equations in x and y with one integer solution."""
    most, factors = (9, 9, 9, 12, 20)[level - 1], (1, 2, 3, 6, 9)[level - 1]
    low = 0 if level == 1 else -most
    x, y = rng.randint(low, most), rng.randint(low, most)
    a, b, c, d = 1, 1, 1, -1
    while level > 1:
        a, b, c, d = (_nonzero(rng, factors, negative=True) for _ in range(4))
        if a * d != b * c:
            break
    rows = [f"{_term(p, 'x')}{_signed(q, 'y')}={p * x + q * y}" for p, q in ((a, b), (c, d))]
    words = f"Solve {_spaced(rows[0])} and {_spaced(rows[1])} for x and y."
    return MathProblem("system", words, ",".join(rows), (Fraction(x), Fraction(y)), ("x", "y"))


def fractions(rng: Random, level: int) -> MathProblem:
    """Sums and differences of fractions; products from level 3, quotients from level 4, three of them at level 5."""
    most = (9, 9, 9, 12, 12)[level - 1]
    operators = ("+", "+-", "+-*", "*/", "*/")[level - 1]
    parts = [_proper(rng, most) for _ in range(3 if level == 5 else 2)]
    value, text = parts[0], [str(parts[0])]
    for place, part in enumerate(parts[1:]):
        operator = rng.choice(operators)
        value = {"+": value + part, "-": value - part, "*": value * part, "/": value / part}[operator]
        left = f"({text[-1]})" if place else text[-1]
        text.append(f"{left}{operator}{_grouped(part) if operator in '*/' else part}")
        if operator in "*/" and not place:
            text[-1] = f"{_grouped(parts[0])}{operator}{_grouped(part)}"
    words = text[-1].replace("+", " + ").replace("-", " - ").replace("*", " * ").replace(")/", ") / ")
    return MathProblem("fractions", f"Compute {words} as a fraction.", f"{text[-1]}=", (value,))


def modular(rng: Random, level: int) -> MathProblem:
    """A remainder: of a number, a sum, a product, a power; at level 5 an inverse."""
    if level == 5:
        modulus = rng.choice(_PRIMES)
        a, b = rng.randint(2, modulus - 1), rng.randint(1, modulus - 1)
        x = b * pow(a, -1, modulus) % modulus
        words = f"Find the x from 0 to {modulus - 1} for which {a}x leaves remainder {b} when divided by {modulus}."
        return MathProblem("modular", words, f"{a}x%{modulus}={b}", (Fraction(x),), ("x",))
    modulus = rng.randint(5, 12) if level < 3 else rng.choice(_PRIMES)
    a, b = rng.randint(2, 60), rng.randint(2, 60)
    text, value = (
        (f"{a}", a),
        (f"({a} + {b})", a + b),
        (f"({a} * {b})", a * b),
        (f"{a}^{2 + b % 8}", a ** (2 + b % 8)),
    )[level - 1]
    told = text.strip("()").replace("^", " to the power of ")
    words = f"What is the remainder of {told} divided by {modulus}?"
    return MathProblem("modular", words, f"{text.replace(' ', '')}%{modulus}=", (Fraction(value % modulus),))


def polynomial(rng: Random, level: int) -> MathProblem:
    """The value of a polynomial of degree 1 to 4 at an integer."""
    degree, most = (1, 2, 2, 3, 4)[level - 1], (5, 5, 9, 9, 9)[level - 1]
    x = rng.randint(0, 9) if level == 1 else rng.randint(-most, most)
    factors = [_nonzero(rng, most, negative=level > 1), *(rng.randint(-most, most) for _ in range(degree))]
    if level == 1:
        factors = [abs(factor) for factor in factors]
    text = _term(factors[0], _power(degree))
    for power, factor in zip(range(degree - 1, -1, -1), factors[1:], strict=True):
        text += _signed(factor, _power(power))
    value = sum(factor * x ** (degree - place) for place, factor in enumerate(factors))
    words = f"What is {_spaced(text)} for x = {x}?"
    return MathProblem("polynomial", words, f"{text};x={x}", (Fraction(value),))


def percentage(rng: Random, level: int) -> MathProblem:
    """A share of a number, and from level 3 the number after a change by a share, the whole of a part."""
    share = rng.choice((10, 20, 25, 50, 75) if level == 1 else range(1, 100))
    whole = rng.randint(1, (20, 50, 100, 200, 500)[level - 1]) * (20 if level == 1 else 10)
    part = Fraction(share * whole, 100)
    if level < 3:
        return MathProblem("percentage", f"What is {share}% of {whole}?", f"{share}% of {whole}=", (part,))
    if level < 5 or rng.random() < 0.5:
        more = rng.random() < 0.5
        words = f"{whole} {'grows' if more else 'shrinks'} by {share}%. What is it then?"
        value = whole + part if more else whole - part
        return MathProblem("percentage", words, f"{whole}{'+' if more else '-'}{share}%=", (value,))
    return MathProblem(
        "percentage",
        f"{part} is {share}% of which number?",
        f"{share}% of x={part}",
        (Fraction(whole),),
        ("x",),
    )


def sequence(rng: Random, level: int) -> MathProblem:
    """The next number: equal steps, from level 3 equal factors or growing steps as well, from level 5 sums of two."""
    first, step = rng.randint(0, 20), _nonzero(rng, (5, 12, 12, 20, 20)[level - 1], negative=level > 1)
    kind = rng.choice(
        ("step",) if level < 3 else ("step", "factor", "growing") if level < 5 else ("growing", "sums")
    )
    if kind == "step":
        numbers = [first + step * place for place in range(5)]
    elif kind == "factor":
        factor, start = rng.choice((2, 3, -2)), rng.randint(1, 9)
        numbers = [start * factor**place for place in range(5)]
    elif kind == "growing":
        growth = rng.randint(1, 5)
        numbers = [first + step * place + growth * place * (place - 1) // 2 for place in range(6)]
    else:
        numbers = [rng.randint(1, 9), rng.randint(1, 9)]
        while len(numbers) < 7:
            numbers.append(numbers[-1] + numbers[-2])
    *shown, following = numbers
    words = f"Which number comes next: {', '.join(map(str, shown))}?"
    return MathProblem("sequence", words, f"{','.join(map(str, shown))},?", (Fraction(following),))


def divisors(rng: Random, level: int) -> MathProblem:
    """Greatest common divisor, least common multiple from level 3, of two numbers or, at level 5, three."""
    most, common = (12, 20, 12, 20, 12)[level - 1], rng.randint(2, 9)
    numbers = [common * rng.randint(1, most) for _ in range(3 if level == 5 else 2)]
    multiple = level >= 3 and rng.random() < 0.5
    value = math.lcm(*numbers) if multiple else math.gcd(*numbers)
    name = "least common multiple" if multiple else "greatest common divisor"
    listed = f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
    symbols = f"{'lcm' if multiple else 'gcd'}({','.join(map(str, numbers))})="
    return MathProblem("divisors", f"What is the {name} of {listed}?", symbols, (Fraction(value),))


def _nonzero(rng: Random, most: int, *, negative: bool = False, other: int = 0) -> int:
    """Draw an integer up to `most` that is neither 0 nor `other`."""
    low = -most if negative else 1
    return rng.choice([number for number in range(low, most + 1) if number not in (0, other)])


def _proper(rng: Random, most: int) -> Fraction:
    bottom = rng.randint(2, most)
    return Fraction(rng.randint(1, bottom - 1), bottom)


def _grouped(value: Fraction) -> str:
    return f"({value})"


def _term(factor: int, name: str) -> str:
    """Return the first term of a sum: `3x`, `-x`, `4`."""
    if not name:
        return str(factor)
    return f"{ {1: '', -1: '-'}.get(factor, factor) }{name}"


def _signed(factor: int, name: str = "") -> str:
    """Return a later term of a sum: `+3x`, `-x`, `+4`, nothing for 0."""
    if not factor:
        return ""
    text = _term(factor, name)
    return text if text.startswith("-") else f"+{text}"


def _power(exponent: int) -> str:
    return {0: "", 1: "x"}.get(exponent, f"x^{exponent}")


def _spaced(text: str) -> str:
    """Put spaces around = and around operators between terms."""
    head, tail = text[0], text[1:]
    for operator in "+-":
        tail = tail.replace(operator, f" {operator} ")
    return (head + tail).replace("=", " = ").replace("=  - ", "= -")


TRAINED: dict[str, Family] = {
    "arithmetic": arithmetic,
    "linear": linear,
    "system": system,
    "fractions": fractions,
    "modular": modular,
    "polynomial": polynomial,
    "word_problem": word_problem,
}
UNSEEN: dict[str, Family] = {"percentage": percentage, "sequence": sequence, "divisors": divisors}
