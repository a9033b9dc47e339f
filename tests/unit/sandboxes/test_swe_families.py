"""The bug families: what each plants, that it is one edit, and that the rest of a file stays as it is."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rock_env.tools import Edit
from rock_env.tools.edits import Applied, apply_edit
from sandboxes.swe.bugs.mutate import FAMILIES, TRAIN_FAMILIES, UNSEEN_FAMILIES, Bug, bugs_of, plant
from sandboxes.swe.factory import PACKAGES

SHOP = '''\
"""A shop."""


class Shop:
    """Sells things."""

    def __init__(self, prices, open_from=8):
        self.prices = prices
        self.sold = 0
        self.taken = 0

    def sell(self, name, count, rebate=0):
        """Return what is to pay."""
        if name not in self.prices:
            raise KeyError(f"no {name - 1}")
        if count <= 0 or rebate > 100:
            return 0
        due = scaled(self.prices[name] * count, rebate)
        self.sold += count
        self.taken += due
        return max(due, 1)


def scaled(amount, rebate):
    """Return the amount without the rebate."""
    left = 100 - rebate
    return amount * left // 100


def firsts(names, most):
    """Return the first letters."""
    letters = []
    for place in range(most):
        letters.append(names[place][:1])
    return letters
'''
EXPECTED: dict[str, list[tuple[str, str]]] = {
    "off_by_one": [
        ("        if count <= 0 or rebate > 100:", "        if count < 0 or rebate > 100:"),
        ("        if count <= 0 or rebate > 100:", "        if count <= 0 or rebate > 101:"),
        ("    for place in range(most):", "    for place in range(1, most):"),
        ("    for place in range(most):", "    for place in range(most - 1):"),
        ("        letters.append(names[place][:1])", "        letters.append(names[place][:2])"),
    ],
    "wrong_operator": [
        ("        if count <= 0 or rebate > 100:", "        if count <= 0 and rebate > 100:"),
        ("        if count <= 0 or rebate > 100:", "        if count <= 0 or rebate < 100:"),
        ("        self.sold += count", "        self.sold -= count"),
        ("        self.sold += count", "        self.sold = count"),
        ("    left = 100 - rebate", "    left = 100 + rebate"),
        ("        return max(due, 1)", "        return min(due, 1)"),
    ],
    "wrong_variable": [
        ("        self.sold += count", "        self.sold += due"),
        ("    return amount * left // 100", "    return rebate * left // 100"),
    ],
    "missing_return": [
        ("    return amount * left // 100", "    amount * left // 100"),
        (
            "        letters.append(names[place][:1])\n    return letters",
            "        letters.append(names[place][:1])",
        ),
    ],
    "wrong_default": [
        (
            "    def __init__(self, prices, open_from=8):",
            "    def __init__(self, prices, open_from=7):",
        ),
        ("        self.sold = 0", "        self.sold = 1"),
    ],
    "missing_edge_case": [
        ("        if count <= 0 or rebate > 100:", "        if count <= 0:"),
        ("        return max(due, 1)", "        return due"),
        (
            "        if count <= 0 or rebate > 100:\n            return 0\n"
            "        due = scaled(self.prices[name] * count, rebate)",
            "        due = scaled(self.prices[name] * count, rebate)",
        ),
    ],
    "swapped_arguments": [
        (
            "        due = scaled(self.prices[name] * count, rebate)",
            "        due = scaled(rebate, self.prices[name] * count)",
        ),
    ],
    "exception_swallowed": [
        ('            raise KeyError(f"no {name - 1}")', "            return None"),
        (
            "        due = scaled(self.prices[name] * count, rebate)",
            "        try:\n            due = scaled(self.prices[name] * count, rebate)\n"
            "        except Exception:\n            return None",
        ),
    ],
    "inverted_condition": [
        ("        if name not in self.prices:", "        if name in self.prices:"),
        ("        if count <= 0 or rebate > 100:", "        if not (count <= 0 or rebate > 100):"),
    ],
}
MODULES = [path for path in sorted(PACKAGES.glob("*/*/*.py")) if path.parent.name == path.parents[1].name]


def is_one_edit(text: str, bug: Bug) -> None:
    broken = plant(text, bug)
    ast.parse(broken)
    lines, before = text.split("\n"), bug.line - 1
    assert broken.split("\n")[:before] == lines[:before]
    assert text.count(bug.old) == 1
    after = len(lines) - before - len(bug.old.split("\n"))
    assert after == 0 or broken.split("\n")[-after:] == lines[-after:]
    fixed = apply_edit(broken.encode(), Edit("file.py", bug.new, bug.old))
    assert isinstance(fixed, Applied)
    assert fixed.content.decode() == text


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_plants_what_its_name_says(family: str) -> None:
    bugs = bugs_of(SHOP, family)
    assert {(bug.old, bug.new) for bug in bugs} >= set(EXPECTED[family])
    assert {bug.family for bug in bugs} == {family}
    for bug in bugs:
        is_one_edit(SHOP, bug)


def test_no_two_families_plant_the_same_bug() -> None:
    seen: dict[str, str] = {}
    for family in FAMILIES:
        for bug in bugs_of(SHOP, family):
            assert seen.setdefault(plant(SHOP, bug), family) == family, bug


def test_nothing_inside_an_f_string_is_touched() -> None:
    for family in FAMILIES:
        for bug in bugs_of(SHOP, family):
            assert "{name + 1}" not in bug.new


def test_a_bug_knows_its_function() -> None:
    found = {bug.function for family in FAMILIES for bug in bugs_of(SHOP, family)}
    assert found == {"Shop.__init__", "Shop.sell", "scaled", "firsts"}


def test_families_are_trained_on_or_unseen() -> None:
    assert not set(TRAIN_FAMILIES) & set(UNSEEN_FAMILIES)
    assert {*TRAIN_FAMILIES, *UNSEEN_FAMILIES} == set(FAMILIES)


@pytest.mark.parametrize("path", MODULES[::11], ids=lambda path: path.name)
def test_every_bug_in_a_package_is_one_edit(path: Path) -> None:
    text = path.read_text()
    for family in FAMILIES:
        for bug in bugs_of(text, family):
            is_one_edit(text, bug)


@given(st.text(alphabet="ab+-*<>=()[]:,.'\" \n01ifreturndefé", max_size=60))
def test_any_line_in_a_function_is_survived(line: str) -> None:
    text = f"def first(a, b=1):\n    {line}\n    return a + b\n"
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for family in FAMILIES:
        for bug in bugs_of(text, family):
            is_one_edit(text, bug)


def test_a_bug_for_other_lines_is_refused() -> None:
    bug = bugs_of(SHOP, "wrong_operator")[0]
    with pytest.raises(ValueError, match="was made for"):
        plant("\n" + SHOP, bug)
