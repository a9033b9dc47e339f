"""Every `ale` command that the documentation shows is one that the program takes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands import Refused, named_commands, parse, shown_commands
from pages import ROOT, markdown_files

from ale.option_names import option_names
from rock_env.plugins import names

FREE = ("env_args.", "algo_options.", "engine_options.")
"""Options of plugins, whatever they are."""
INCOMPLETE = {"MissingParameter", "BadOptionUsage", "BadParameter"}
"""Prose may leave out arguments and an option's value (`--run`), or write SIZE for a number."""


def pages_with(commands: Callable[[Path], Iterator[list[str]]]) -> list[Path]:
    return [path for path in markdown_files() if any(True for _ in commands(path))]


@pytest.mark.parametrize("page", pages_with(shown_commands), ids=lambda path: str(path.relative_to(ROOT)))
def test_shown_commands_parse(page: Path) -> None:
    known, algorithms = frozenset(option_names()), names("ale.algorithms")
    for words in shown_commands(page):
        line = f"ale {' '.join(words)}"
        try:
            given = parse(words)
        except Refused as refused:
            pytest.fail(f"{line}: {refused}")
        for setting in given.get("overrides") or []:
            name = setting.partition("=")[0]
            assert name.startswith(FREE) or name in known, f"{line}: there is no option {name}"
        algo = given.get("algo")
        known_here = f'\n{algo} = "' in page.read_text(
            encoding="utf-8"
        )  # the entry point that the page writes
        assert algo is None or algo in algorithms or known_here, f"{line}: there is no algorithm {algo}"


@pytest.mark.parametrize("page", pages_with(named_commands), ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_named_in_prose_exist(page: Path) -> None:
    for words in named_commands(page):
        try:
            parse(words)
        except Refused as refused:
            if refused.kind not in INCOMPLETE:
                pytest.fail(f"ale {' '.join(words)}: {refused}")


def test_commands_are_found_at_all(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Use `ale env list \\| show`.\n```sh\nA=1 ale rock ps | wc  # ale x\ntar c . | ale rock exec -i a -- b\n```\n"
    )
    assert list(shown_commands(page)) == [["rock", "ps"], ["rock", "exec", "-i", "a", "--", "b"]]
    assert list(named_commands(page)) == [["env", "list"]]
    with pytest.raises(Refused, match="no-such-option"):
        parse(["train", "--no-such-option"])
    with pytest.raises(Refused, match="tarin"):
        parse(["tarin"])
