"""Views of the console look as they did: small grey pictures, compared with a tolerance for other fonts.

`python scripts/console_shots.py` draws them anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from console_parts import REFERENCES, opened, reduced, served, taken, write_runs

KEPT = Path(__file__).parent / "references"
MOST_MEAN = 6.0
"""Of 255: the mean difference of two cells."""
MOST_OTHER = 0.03
"""The share of cells that differ by more than `OTHER`."""
OTHER = 48


@pytest.fixture(scope="module")
def looks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("runs")
    write_runs(folder)
    with served(folder) as address, opened(address, color_scheme="light") as page:
        yield {name: reduced(taken(page, address, name)) for name in REFERENCES}


def apart(one: Any, other: Any) -> tuple[float, float]:
    """Return the mean difference of two pictures' cells, and the share of those that are others."""
    chops = pytest.importorskip("PIL.ImageChops")
    assert one.size == other.size
    counts = chops.difference(one, other.convert("L")).histogram()
    cells = one.size[0] * one.size[1]
    mean = sum(value * count for value, count in enumerate(counts)) / cells
    return mean, sum(counts[OTHER + 1 :]) / cells


def is_like(one: Any, other: Any) -> bool:
    mean, others = apart(one, other)
    return mean <= MOST_MEAN and others <= MOST_OTHER


@pytest.mark.parametrize("name", REFERENCES)
def test_a_view_looks_as_it_did(looks: dict[str, Any], name: str) -> None:
    image = pytest.importorskip("PIL.Image")
    kept = image.open(KEPT / f"{name}.png")
    assert is_like(looks[name], kept), apart(looks[name], kept)


def test_views_look_different_from_each_other(looks: dict[str, Any]) -> None:
    names = [name for name in REFERENCES if name not in ("board", "tokens")]
    assert not [
        (one, other) for one in names for other in names if one < other and is_like(looks[one], looks[other])
    ]


def test_references_are_small() -> None:
    assert sum(file.stat().st_size for file in KEPT.iterdir()) < 200_000
