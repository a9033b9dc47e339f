"""Functions of a list of integers."""

from __future__ import annotations

from random import Random

from sandboxes.code.problem import Arguments, Row, family

__all__ = ["FAMILIES", "some_numbers"]


def some_numbers(rng: Random) -> Arguments:
    """Integers of either sign, some of them several times."""
    few = [rng.randint(-20, 60) for _ in range(6)]
    return ([rng.choice((rng.choice(few), rng.randint(-9, 30))) for _ in range(rng.randint(1, 9))],)


_KEPT = (
    *(
        Row(f"keep_{name}", f"the numbers that are {says}, in their order", f"[n for n in numbers if {test}]")
        for name, says, test in (
            ("even", "even", "n % 2 == 0"),
            ("odd", "odd", "n % 2 == 1"),
            ("positive", "greater than 0", "n > 0"),
            ("negative", "less than 0", "n < 0"),
            ("multiples_of_3", "multiples of 3", "n % 3 == 0"),
            ("multiples_of_5", "multiples of 5", "n % 5 == 0"),
            ("two_digits", "from 10 to 99", "10 <= n <= 99"),
            ("squares", "squares of an integer", "n >= 0 and int(n**0.5 + 0.5) ** 2 == n"),
            ("primes", "prime numbers", "n > 1 and all(n % d for d in range(2, n))"),
            ("above_mean", "greater than the mean of all", "n * len(numbers) > sum(numbers)"),
            ("single", "in the list exactly once", "numbers.count(n) == 1"),
        )
    ),
)

_SUMS = (
    Row("sum_even", "the sum of the even numbers", "sum(n for n in numbers if n % 2 == 0)"),
    Row("sum_odd", "the sum of the odd numbers", "sum(n for n in numbers if n % 2 == 1)"),
    Row("sum_positive", "the sum of the numbers greater than 0", "sum(n for n in numbers if n > 0)"),
    Row("sum_squares", "the sum of the squares of the numbers", "sum(n * n for n in numbers)"),
    Row("sum_sizes", "the sum of the absolute values", "sum(abs(n) for n in numbers)"),
    Row("sum_every_second", "the sum of the first number, the third and so on", "sum(numbers[::2])"),
    Row(
        "alternating_sum",
        "the first number minus the second plus the third and so on",
        "sum(numbers[::2]) - sum(numbers[1::2])",
    ),
    Row(
        "sum_neighbour_products",
        "the sum of the products of each two neighbours",
        "sum(one * two for one, two in zip(numbers, numbers[1:]))",
    ),
    Row(
        "sum_without_extremes",
        "the sum without one largest and one smallest number; 0 if there are fewer than three",
        "sum(sorted(numbers)[1:-1])",
    ),
    Row("sum_different", "the sum of the different numbers, each once", "sum(set(numbers))"),
    Row(
        "sum_of_digits",
        "the sum of all digits of all numbers, without signs",
        "sum(int(digit) for n in numbers for digit in str(abs(n)))",
    ),
)

_LONGEST_RISE = """
best = length = 0
for place, n in enumerate(numbers):
    length = length + 1 if place and n > numbers[place - 1] else 1
    best = max(best, length)
return best
"""
_FIRST_MISSING = """
n = 0
while n in numbers:
    n += 1
return n
"""

_FOUND = (
    Row(
        "largest_even",
        "the largest even number, 0 if there is none",
        "max((n for n in numbers if n % 2 == 0), default=0)",
    ),
    Row(
        "smallest_positive",
        "the smallest number greater than 0, 0 if there is none",
        "min((n for n in numbers if n > 0), default=0)",
    ),
    Row(
        "second_largest",
        "the second largest of the different numbers, 0 if there are fewer than two",
        "sorted(set(numbers))[-2] if len(set(numbers)) > 1 else 0",
    ),
    Row(
        "spread",
        "the largest number minus the smallest, 0 if the list is empty",
        "max(numbers, default=0) - min(numbers, default=0)",
    ),
    Row(
        "place_of_largest",
        "the index of the first largest number, -1 if the list is empty",
        "numbers.index(max(numbers)) if numbers else -1",
    ),
    Row(
        "times_largest",
        "how many times the largest number occurs, 0 if the list is empty",
        "numbers.count(max(numbers)) if numbers else 0",
    ),
    Row(
        "most_frequent",
        "the number that occurs most often, the smallest of them if there are several, 0 if the list is empty",
        "min(numbers, key=lambda n: (-numbers.count(n), n), default=0)",
    ),
    Row(
        "largest_step",
        "the largest absolute difference of two neighbours, 0 if there are none",
        "max((abs(one - two) for one, two in zip(numbers, numbers[1:])), default=0)",
    ),
    Row(
        "longest_rise",
        "the length of the longest part in which each number is greater than the one before",
        _LONGEST_RISE,
    ),
    Row("first_missing", "the smallest integer from 0 on that is not in the list", _FIRST_MISSING),
    Row(
        "lower_median",
        "the middle of the sorted numbers, the lower one if there are two, 0 if the list is empty",
        "sorted(numbers)[(len(numbers) - 1) // 2] if numbers else 0",
    ),
)

_CHANGED = (
    Row(
        "running_sums",
        "for each place the sum of the numbers up to it",
        "[sum(numbers[: place + 1]) for place in range(len(numbers))]",
    ),
    Row(
        "running_largest",
        "for each place the largest number up to it",
        "[max(numbers[: place + 1]) for place in range(len(numbers))]",
    ),
    Row(
        "differences",
        "each number but the first minus the one before",
        "[two - one for one, two in zip(numbers, numbers[1:])]",
    ),
    Row("squares", "the squares of the numbers", "[n * n for n in numbers]"),
    Row("backwards", "the numbers in reverse order", "numbers[::-1]"),
    Row(
        "sort_by_size",
        "the numbers sorted by absolute value; those of equal value stay in their order",
        "sorted(numbers, key=abs)",
    ),
    Row("sort_descending", "the numbers, largest first", "sorted(numbers, reverse=True)"),
    Row("without_repeats", "the numbers without those that came before", "list(dict.fromkeys(numbers))"),
    Row(
        "swap_neighbours",
        "the numbers with first and second, third and fourth and so on swapped; a last one without a partner stays",
        "[n for place in range(0, len(numbers), 2) for n in numbers[place : place + 2][::-1]]",
    ),
    Row("rotate_left", "the numbers with the first moved to the end", "numbers[1:] + numbers[:1]"),
    Row(
        "even_first",
        "the even numbers, then the odd ones, each in their order",
        "sorted(numbers, key=lambda n: n % 2)",
    ),
)

_EDGES: tuple[Arguments, ...] = (([],), ([7],), ([0, 0],), ([-4, 4, -4],), ([3, 2, 1],))

FAMILIES = (
    family(
        "filter_numbers",
        "(numbers: list[int]) -> list[int]",
        some_numbers,
        (*_EDGES, ([1, 4, 9, 25],)),
        _KEPT,
    ),
    family("sum_numbers", "(numbers: list[int]) -> int", some_numbers, _EDGES, _SUMS),
    family("find_number", "(numbers: list[int]) -> int", some_numbers, (*_EDGES, ([0, 1, 2, 4],)), _FOUND),
    family("change_list", "(numbers: list[int]) -> list[int]", some_numbers, _EDGES, _CHANGED),
)
