"""Pages of results say which code they depend on, and which of it has changed since they were measured."""

import subprocess

import pytest
from pages import ROOT

from benchmarks.claims import NO_FIGURES, PAGES, digest, marked, measured, renewed

FIGURES = [page for page in sorted(PAGES.glob("*.md")) if page.name not in NO_FIGURES]


@pytest.mark.parametrize("page", FIGURES, ids=lambda page: page.name)
def test_a_page_says_what_has_changed_since_it_was_measured(page) -> None:
    text = page.read_text(encoding="utf-8")
    commit, digests = measured(text)
    assert commit, (
        f"say what it depends on: python -m benchmarks.claims {page.name} COMMIT PATH... (files and folders)"
    )
    for path in digests:
        assert (ROOT / path).exists(), f"{page.name} depends on {path}, which is not there: name it anew"
    assert renewed(text) == text, (
        "code that the page depends on changed: run `make claims`, which says so in it"
    )


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "loss.py").write_text("LOSS = 1\n")
    (tmp_path / "recipe.toml").write_text("steps = 1\n")
    return tmp_path


def test_a_change_brings_the_line_and_taking_it_back_removes_it(tree) -> None:
    digests = {path: digest(path, tree) for path in ("trainer", "recipe.toml")}
    page = marked("# Title\n\nFigures.\n\nMore.\n", "abc1234", digests, tree)
    assert page.startswith("# Title\n\n<!-- measured at abc1234 on trainer ")
    assert page.endswith(" -->\n\nFigures.\n\nMore.\n")
    assert measured(page) == ("abc1234", digests)
    assert renewed(page, tree) == page
    (tree / "trainer" / "loss.py").write_text("LOSS = 2\n")
    stale = renewed(page, tree)
    assert stale == page.replace(
        "Figures.", "**Measured before changes to `trainer`: not run again.**\n\nFigures."
    )
    assert renewed(stale, tree) == stale
    (tree / "recipe.toml").write_text("steps = 2\n")
    assert "changes to `trainer`, `recipe.toml`: not" in renewed(stale, tree)
    (tree / "recipe.toml").write_text("steps = 1\n")
    (tree / "trainer" / "loss.py").write_text("LOSS = 1\n")
    assert renewed(stale, tree) == page


@pytest.mark.parametrize("change", ["new.py", "gone"])
def test_a_file_more_or_less_is_a_change(tree, change) -> None:
    before = digest("trainer", tree)
    if change == "gone":
        (tree / "trainer" / "loss.py").unlink()
    else:
        (tree / "trainer" / change).write_text("")
    assert digest("trainer", tree) != before


def test_what_is_generated_or_prose_is_none(tree) -> None:
    before = digest("trainer", tree)
    (tree / "trainer" / "README.md").write_text("prose")
    (tree / "trainer" / "api_pb2.py").write_text("generated = 1")
    assert digest("trainer", tree) == before


def test_a_commit_has_the_digests_of_its_tree(tree) -> None:
    def git(*words: str) -> None:
        about = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(tree), *about, *words], check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    before = {path: digest(path, tree) for path in ("trainer", "recipe.toml")}
    (tree / "trainer" / "loss.py").write_text("LOSS = 2\n")
    assert digest("trainer", tree) != before["trainer"]
    assert {path: digest(path, tree, "HEAD") for path in before} == before
