"""Word problems: short stories of one to three steps."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random

from sandboxes.math.problem import MathProblem

__all__ = ["word_problem"]

_PEOPLE = "Alma Boris Carla David Elena Farid Greta Hugo Irene Jonas Karin Lev Mona Nils Olga Pavel".split()  # noqa: SIM905
_THINGS = "apples books cards coins eggs marbles pencils plums shells stamps".split()  # noqa: SIM905
_Told = tuple[str, int]


def _gets(rng: Random, who: str, what: str, size: int) -> _Told:
    has, more = rng.randint(1, size), rng.randint(1, size)
    return f"{who} has {has} {what} and gets {more} more. How many {what} does {who} have?", has + more


def _gives(rng: Random, who: str, what: str, size: int) -> _Told:
    has = rng.randint(2, size)
    away = rng.randint(1, has)
    return f"{who} has {has} {what} and gives away {away}. How many {what} are left?", has - away


def _boxes(rng: Random, who: str, what: str, size: int) -> _Told:
    boxes, each = rng.randint(2, 12), rng.randint(2, size)
    lost = rng.randint(1, each)
    text = f"{who} has {boxes} boxes of {each} {what} and loses {lost} {what}. How many {what} are left?"
    return text, boxes * each - lost


def _shares(rng: Random, who: str, what: str, size: int) -> _Told:
    friends, each, own = rng.randint(2, 9), rng.randint(2, size), rng.randint(1, 9)
    text = (
        f"{who} divides {friends * each} {what} among {friends} friends, all the same. One of them had {own} before. "
        f"How many {what} does that friend have now?"
    )
    return text, each + own


def _walks(rng: Random, who: str, what: str, size: int) -> _Told:
    speed, hours, rest = rng.randint(2, 9), rng.randint(2, 9), rng.randint(1, size)
    distance = speed * hours + rest
    text = f"{who} walks {distance} km: {hours} hours at {speed} km per hour, then the rest. How many km is the rest?"
    return text, rest


def _buys(rng: Random, who: str, what: str, size: int) -> _Told:
    many, price, few, other = rng.randint(2, 9), rng.randint(2, size), rng.randint(2, 9), rng.randint(2, 20)
    change = rng.randint(0, 20)
    paid = many * price + few * other + change
    text = (
        f"{who} buys {many} boxes of {what} at {price} euros each and {few} bags at {other} euros each, and pays {paid} "
        "euros. How many euros come back?"
    )
    return text, change


def _ages(rng: Random, who: str, what: str, size: int) -> _Told:
    now, times, years = rng.randint(3, size), rng.randint(2, 4), rng.randint(1, 15)
    text = (
        f"{who} is {now} years old. Mother is {times} times as old. How old will mother be in {years} years?"
    )
    return text, now * times + years


def _collects(rng: Random, who: str, what: str, size: int) -> _Told:
    days, daily, split = rng.randint(2, 9), rng.randint(2, 12), rng.randint(2, 6)
    start = -(days * daily) % split + split * rng.randint(0, size)
    text = (
        f"{who} has {start} {what} and finds {daily} more on each of {days} days, and puts all into {split} equal bags. "
        f"How many {what} are in a bag?"
    )
    return text, (start + days * daily) // split


_Story = Callable[[Random, str, str, int], _Told]
_STORIES: tuple[tuple[_Story, ...], ...] = (
    (_gets, _gives),
    (_gets, _gives, _boxes),
    (_boxes, _ages, _walks),
    (_shares, _ages, _walks),
    (_buys, _collects, _shares),
)
"""By level, easiest first."""


def word_problem(rng: Random, level: int) -> MathProblem:
    """A story of one step at level 1 to three at level 5. It is told in words in either style."""
    who, what = rng.choice(_PEOPLE), rng.choice(_THINGS)
    story = rng.choice(_STORIES[level - 1])
    text, answer = story(rng, who, what, (10, 40, 20, 40, 40)[level - 1])
    return MathProblem("word_problem", text, text, (Fraction(answer),))
