"""The alignment table of docs/algorithms.md: a row per installed algorithm and setting count, made by the script."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from algo_cases import SPECS

ROOT = Path(__file__).parents[4]
BOUND = 1e-12


@pytest.fixture(scope="module")
def rows():
    spec = spec_from_file_location("algo_alignment", ROOT / "scripts" / "algo_alignment.py")
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    return [cells(row) for row in script.rows()], "| " + " | ".join(script.HEADER) + " |"


def cells(row):
    return [cell.strip() for cell in row.strip("| ").split("|")]


def documented(header):
    lines = iter((ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8").splitlines())
    assert header in lines, f"docs/algorithms.md has no table {header!r}; run scripts/algo_alignment.py"
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("|"):
            return found
        found.append(cells(line))
    return found


def test_the_page_has_a_row_for_every_algorithm_and_all_its_settings(rows):
    """Digits may differ between machines; what was measured may not."""
    measured, header = rows
    assert [row[:2] for row in documented(header)] == [row[:2] for row in measured], (
        "docs/algorithms.md is behind: replace its table by the output of scripts/algo_alignment.py"
    )
    assert [row[0] for row in measured] == [f"`{name}`" for name in SPECS]


def test_what_the_page_says_holds_here_too(rows):
    measured, header = rows
    for row in [*measured, *documented(header)]:
        size, loss, grad, single = map(float, row[2:])
        assert loss < BOUND
        assert grad < BOUND
        assert single < 1e-6
        assert size > 1e-3
