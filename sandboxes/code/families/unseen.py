"""Functions of two lists, and of texts in a format: families no agent is trained on."""

from __future__ import annotations

from random import Random

from sandboxes.code.families.lists import some_numbers
from sandboxes.code.problem import Arguments, Draw, Row, family

__all__ = ["FAMILIES"]


def _lists(rng: Random) -> Arguments:
    few = [rng.randint(-9, 9) for _ in range(6)]
    one, two = (rng.choices(few, k=rng.randint(0, 6)) for _ in range(2))
    return one, rng.choice((two, [*one[: rng.randint(0, 3)], *two], sorted(two)))


_ALTERNATED = """
result = []
for place in range(max(len(left), len(right))):
    result += left[place : place + 1] + right[place : place + 1]
return result
"""
_COMMON_BEGINNING = """
result = []
for one, two in zip(left, right):
    if one != two:
        break
    result.append(one)
return result
"""
_TAKEN_AWAY = """
result = list(left)
for n in right:
    if n in result:
        result.remove(n)
return result
"""

_TWO_LISTS = (
    Row(
        "shared",
        "the numbers of left that are in right too, without those that came before",
        "[n for n in dict.fromkeys(left) if n in right]",
    ),
    Row(
        "only_left",
        "the numbers of left that are not in right, in their order",
        "[n for n in left if n not in right]",
    ),
    Row("merged", "the numbers of both lists together, sorted", "sorted(left + right)"),
    Row("either", "the different numbers of both lists, sorted", "sorted({*left, *right})"),
    Row(
        "in_one_only",
        "the different numbers that are in exactly one of the lists, sorted",
        "sorted({*left} ^ {*right})",
    ),
    Row(
        "alternated",
        "the first of left, the first of right, the second of left and so on; the rest of the longer list at the end",
        _ALTERNATED,
    ),
    Row(
        "pair_sums",
        "the sums of first and first, second and second and so on, as long as both lists have one",
        "[one + two for one, two in zip(left, right)]",
    ),
    Row(
        "pair_largest",
        "the larger of first and first, second and second and so on, as long as both lists have one",
        "[max(pair) for pair in zip(left, right)]",
    ),
    Row("common_beginning", "the numbers with which both lists begin", _COMMON_BEGINNING),
    Row("taken_away", "left without one occurrence, the first, for each number of right", _TAKEN_AWAY),
    Row(
        "equal_places",
        "the indices at which both lists have the same number",
        "[place for place, pair in enumerate(zip(left, right)) if pair[0] == pair[1]]",
    ),
)


def _sentence(rng: Random) -> Arguments:
    parts = [
        rng.choice(("egg", "of", "x", "")) + str(rng.randint(0, 130)) + rng.choice((" ", ", ", "kg "))
        for _ in range(rng.randint(1, 4))
    ]
    return ("".join(parts).strip(),)


def _roman(rng: Random) -> Arguments:
    n, text = rng.randint(1, 3999), ""
    for value, letters in zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        ("M", "CM", "D", "CD", "C", "XC", "L", "XL", "X", "IX", "V", "IV", "I"),
        strict=True,
    ):
        text += letters * (n // value)
        n %= value
    return (text,)


def _drawn(alphabet: str, least: int, most: int) -> Draw:
    return lambda rng: ("".join(rng.choices(alphabet, k=rng.randint(least, most))),)


def _nested(rng: Random) -> Arguments:
    text = ""
    for _ in range(rng.randint(1, 4)):
        text = rng.choice((f"({text})", f"{text}()", f"({text})()", f"()({text})"))
    return (text,)


_NESTING = """
depth = deepest = 0
for c in text:
    depth += 1 if c == "(" else -1
    deepest = max(deepest, depth)
return deepest
"""
_ROMAN = """
values = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
total = 0
for place, letter in enumerate(text):
    value = values[letter]
    following = values[text[place + 1]] if place + 1 < len(text) else 0
    total += -value if value < following else value
return total
"""
_COLUMN = """
number = 0
for letter in text:
    number = number * 26 + ord(letter) - ord("A") + 1
return number
"""
_FIND = "import re\nfound = [int(digits) for digits in re.findall('[0-9]+', text)]\n"
_CLOCK = "int(text.split(':')[0]) * 60 + int(text.split(':')[1])"

_DIFFERENCE = """
one, two = ([int(part) for part in time.split(":")] for time in text.split("-"))
return 60 * (two[0] - one[0]) + two[1] - one[1]
"""

_FORMATS = (
    Row(
        "clockminutes",
        "the minutes since midnight of a time such as 7:05",
        _CLOCK,
        lambda rng: (f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}",),
        (("0:00",), ("23:59",)),
    ),
    Row(
        "clock_difference",
        "the minutes from the first time to the second, on the same day, in a text such as 7:05-9:15",
        _DIFFERENCE,
        lambda rng: (
            f"{rng.randint(0, 11)}:{rng.randint(0, 59):02}-{rng.randint(12, 23)}:{rng.randint(0, 59):02}",
        ),
        (("0:00-0:00",),),
    ),
    Row("roman_value", "the value of a Roman numeral", _ROMAN, _roman, (("IV",), ("MCMXCIV",))),
    Row(
        "sum_in_text",
        "the sum of all numbers in text, where neighbouring digits are one number",
        f"{_FIND}return sum(found)",
        _sentence,
        (("",),),
    ),
    Row(
        "largest_in_text",
        "the largest number in text, where neighbouring digits are one number, 0 if there is none",
        f"{_FIND}return max(found, default=0)",
        _sentence,
        (("",),),
    ),
    Row("binary_value", "the value of a binary number", "int(text, 2)", _drawn("01", 1, 9), (("0",),)),
    Row("base_3_value", "the value of a number in base 3", "int(text, 3)", _drawn("012", 1, 7), (("0",),)),
    Row(
        "spreadsheet_column",
        "the number of a spreadsheet column: A is 1, Z is 26, AA is 27",
        _COLUMN,
        _drawn("ABCXYZ", 1, 3),
        (("Z",), ("AA",)),
    ),
    Row(
        "nesting",
        "how deep the parentheses of text, which are balanced, are nested",
        _NESTING,
        _nested,
        (("",), ("()",), ("()()",)),
    ),
    Row(
        "plus_and_minus",
        "the value of integers joined by + and - without spaces, such as 7-2+10",
        "sum(int(part) for part in text.replace('-', '+-').split('+'))",
        lambda rng: (
            str(rng.randint(0, 30))
            + "".join(f"{rng.choice('+-')}{rng.randint(0, 30)}" for _ in range(rng.randint(0, 4))),
        ),
        (("5",), ("0-9",)),
    ),
    Row(
        "dotted_number",
        "the value of four numbers from 0 to 255 joined by dots, read as the four digits of a number in base 256",
        "number = 0\nfor part in text.split('.'):\n    number = number * 256 + int(part)\nreturn number",
        lambda rng: (".".join(str(rng.choice((0, 1, 10, rng.randint(0, 255)))) for _ in range(4)),),
        (("0.0.0.0",), ("255.255.255.255",)),
    ),
)

_LIST_EDGES: tuple[Arguments, ...] = (([], []), ([1], []), ([], [1]), ([2, 2], [2]), ([1, 2, 3], [3, 2, 1]))

FAMILIES = (
    family("two_lists", "(left: list[int], right: list[int]) -> list[int]", _lists, _LIST_EDGES, _TWO_LISTS),
    family("formats", "(text: str) -> int", some_numbers, (), _FORMATS),
)
