"""What the code cites is there."""

import re

from pages import ROOT, sections

PACKAGES = (
    "ale",
    "trainer",
    "agent_runtime",
    "rock_env",
    "sandboxes",
    "tests",
    "benchmarks",
    "examples",
    "scripts",
)
_PAGE = re.compile(r"docs/ipa\.md((?:,? sections? (\d+)(?:(?:,| and|, and) (\d+))*)?)")


def test_every_cited_section_of_the_ipa_page_exists() -> None:
    known = sections(ROOT / "docs" / "ipa.md")
    cited = 0
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = re.sub(r"\s+#? *", " ", path.read_text(encoding="utf-8"))
            for match in _PAGE.finditer(text):
                numbers = {int(number) for number in re.findall(r"\d+", match[1])}
                cited += bool(numbers)
                assert numbers <= known, (
                    f"{path.relative_to(ROOT)} cites {match[0]}, the page has {sorted(known)}"
                )
    assert cited >= 10


def test_every_cited_page_exists() -> None:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for page in re.findall(r"(?<![\w/.])docs/(?:[a-z_\d/-]+|[a-z/]*README)\.md", text):
                assert (ROOT / page).is_file(), f"{path.relative_to(ROOT)} cites {page}"
            for number in re.findall(r"ADR (\d{4})", text):
                assert list((ROOT / "docs" / "adr").glob(f"{number}-*.md")), (path.relative_to(ROOT), number)


def test_the_code_cites_nothing_that_is_not_in_the_repository() -> None:
    """`IPA.md` alone was a document of nobody but its author."""
    stale = re.compile(r"(?<![\w/])[A-Z]{3,}\.md section")
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            assert not stale.search(path.read_text(encoding="utf-8")), path.relative_to(ROOT)
