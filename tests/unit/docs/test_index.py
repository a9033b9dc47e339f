"""docs/README.md leads to every page."""

import re
from pathlib import Path

import pytest
from pages import ROOT, links

DOCS = ROOT / "docs"


def linked(page: Path) -> set[Path]:
    return {(page.parent / target.partition("#")[0]).resolve() for target in links(page) if ":" not in target}


def test_every_page_is_listed() -> None:
    index = linked(DOCS / "README.md")
    folders = {path.parent for path in DOCS.rglob("*.md")} - {DOCS}
    for folder in folders:
        if (folder / "README.md").is_file():  # such a folder lists its own pages
            index |= linked(folder / "README.md")
    missing = sorted(
        str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path not in index | {DOCS / "README.md"}
    )
    assert not missing, f"add to docs/README.md (or to the README.md of their folder): {missing}"


def test_the_index_is_ordered_by_purpose() -> None:
    headings = re.findall(r"^## (.+)$", (DOCS / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == ["Start", "Use", "Extend", "Operate", "Decide"]


@pytest.mark.parametrize("folder", ["adr", "api", "results"])
def test_an_index_of_a_folder_is_reached_from_the_index(folder: str) -> None:
    assert DOCS / folder / "README.md" in linked(DOCS / "README.md")
