"""Every relative link of every Markdown file leads somewhere, and no page holds the marks of a merge."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from pages import ROOT, anchors, links, markdown_files

FILES = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in markdown_files()]


@pytest.mark.parametrize("page", FILES)
def test_relative_links_resolve(page: Path) -> None:
    for target in links(page):
        if re.match(r"[a-z][a-z+.-]*:", target):  # another site
            continue
        place, _, fragment = unquote(target).partition("#")
        found = (page.parent / place).resolve() if place else page
        assert found.exists(), f"{target}: there is no {found}"
        assert found.is_relative_to(ROOT), f"{target} leaves the repository"
        if fragment:
            assert found.suffix == ".md", f"{target}: only headings of Markdown pages have names"
            assert fragment in anchors(found), f"{target}: {place or page.name} has {sorted(anchors(found))}"


@pytest.mark.parametrize("page", FILES)
def test_no_page_is_half_merged(page: Path) -> None:
    marks = re.search(r"^(<<<<<<<|>>>>>>>) [\w/.-]+( \(|$)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert not marks or marks[0].split()[1] in {"SEARCH", "REPLACE"}, marks
