"""Functions that make dictionaries, and functions of square tables."""

from __future__ import annotations

from random import Random

from sandboxes.code.families.texts import WORDS
from sandboxes.code.problem import Arguments, Row, family

__all__ = ["FAMILIES"]


def _items(rng: Random) -> Arguments:
    few = rng.sample([*WORDS, "ant", "arm", "bell", "coal"], 5)
    return ([rng.choice(few) for _ in range(rng.randint(1, 8))],)


def _square(rng: Random) -> Arguments:
    size = rng.randint(1, 4)
    return ([[rng.randint(-9, 9) for _ in range(size)] for _ in range(size)],)


_GROUPED = """
result = {{}}
for {item} in {items}:
    {key} = {value}
return result
"""


def _tally(
    key: str, value: str = "result.get({key}, 0) + 1", items: str = "items", item: str = "item"
) -> str:
    return _GROUPED.format(item=item, items=items, key=f"result[{key}]", value=value.format(key=key))


_PLACES = "enumerate(items)"

_TALLIES = (
    Row("count_items", "how many times each item occurs", _tally("item")),
    Row("last_places", "the last index of each item", _tally("item", "place", _PLACES, "place, item")),
    Row("first_places", "the first index of each item", _tally("item", "items.index(item)")),
    Row("lengths", "the number of letters of each item", _tally("item", "len(item)")),
    Row("count_by_first", "how many items begin with each first letter", _tally("item[0]")),
    Row("count_by_last", "how many items end with each last letter", _tally("item[-1]")),
    Row(
        "letters_by_first",
        "for each first letter how many letters its items have together",
        _tally("item[0]", "result.get({key}, 0) + len(item)"),
    ),
    Row(
        "longest_by_first",
        "for each first letter the number of letters of its longest item",
        _tally("item[0]", "max(result.get({key}, 0), len(item))"),
    ),
    Row(
        "count_letters_of_all",
        "how many times each letter occurs in all items together",
        _tally("letter", items="''.join(items)", item="letter"),
    ),
    Row(
        "repeated_items",
        "how many times each item occurs, only those that occur more than once",
        "{item: items.count(item) for item in items if items.count(item) > 1}",
    ),
    Row(
        "alphabetical_places",
        "the index of each item among the different items in alphabetical order",
        "{item: sorted(set(items)).index(item) for item in items}",
    ),
)

_SQUARES = (
    Row("row_sums", "the sum of each row", "[sum(row) for row in table]"),
    Row("column_sums", "the sum of each column", "[sum(column) for column in zip(*table)]"),
    Row("by_rows", "all numbers, row by row", "[n for row in table for n in row]"),
    Row("by_columns", "all numbers, column by column", "[n for column in zip(*table) for n in column]"),
    Row(
        "main_diagonal",
        "the numbers from the top left corner to the bottom right one",
        "[table[i][i] for i in range(len(table))]",
    ),
    Row(
        "other_diagonal",
        "the numbers from the top right corner to the bottom left one",
        "[table[i][-1 - i] for i in range(len(table))]",
    ),
    Row("row_largest", "the largest number of each row", "[max(row) for row in table]"),
    Row("column_smallest", "the smallest number of each column", "[min(column) for column in zip(*table)]"),
    Row(
        "row_spreads",
        "for each row its largest number minus its smallest",
        "[max(row) - min(row) for row in table]",
    ),
    Row(
        "zigzag",
        "all numbers row by row, the second row, the fourth and so on backwards",
        "[n for i, row in enumerate(table) for n in (row[::-1] if i % 2 else row)]",
    ),
    Row(
        "last_column",
        "the last number of each row, from the bottom row up",
        "[row[-1] for row in table[::-1]]",
    ),
)

FAMILIES = (
    family(
        "tally",
        "(items: list[str]) -> dict[str, int]",
        _items,
        (([],), (["fig", "fig"],), (["oak", "eel", "oak"],)),
        _TALLIES,
    ),
    family(
        "square_table",
        "(table: list[list[int]]) -> list[int]",
        _square,
        (([[5]],), ([[1, 2], [3, 4]],)),
        _SQUARES,
    ),
)
