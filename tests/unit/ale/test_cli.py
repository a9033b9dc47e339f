"""The command line's face: what help costs, and which words it understands."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
import typer

import ale
from ale.cli import app
from ale.lazy_group import LazyGroup

HEAVY = ("torch", "ray", "transformers", "matplotlib", "tensorboard")
"""What no `--help` brings."""
COSTLY = (*HEAVY, "grpc", "numpy")
"""What the help of a group whose commands are imported one by one does not bring either."""

HELP = """
import sys
from ale.cli import main
for command in {commands!r}:
    sys.argv = ["ale", *command, "--help"]
    try:
        main()
    except SystemExit as end:
        assert end.code == 0, (command, end.code)
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""


def commands(command: Any, *words: str) -> Iterator[list[str]]:
    """Yield the words of a command and of all below it, as the application itself has them."""
    yield [*words]
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *words, name)


def brought(every: list[list[str]], modules: tuple[str, ...]) -> str:
    """Show the help of commands in a process of its own; return which of the modules it brought."""
    code = HELP.format(commands=every, heavy=modules)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.count("Usage: ale") == len(every), done.stderr
    return done.stderr.strip()


def test_help_imports_nothing_heavy() -> None:
    every = list(commands(typer.main.get_command(app)))
    assert ["rock", "token", "create"] in every
    assert brought(every, HEAVY) == "[]"


def test_help_of_a_lazy_group_imports_none_of_its_commands() -> None:
    assert brought([[], ["rock"]], COSTLY) == "[]"


def lazy_groups(command: Any) -> Iterator[LazyGroup]:
    """Yield the groups, at any depth, whose commands are imported when they are asked for."""
    if isinstance(command, LazyGroup):
        yield command
    for inner in getattr(command, "commands", {}).values():
        yield from lazy_groups(inner)


def test_a_lazy_group_lists_the_first_line_of_each_commands_help() -> None:
    groups = list(lazy_groups(typer.main.get_command(app)))
    assert len(groups) == 3
    for group in groups:
        for name, place in group.places.items():
            first, _, _ = group.commands[name].help.partition("\n")
            assert place.help == first, name


def _ale(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ale", *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "nearest"),
    [(["trian"], "train"), (["train", "--sed", "3"], "--seed"), (["env", "lst"], "list")],
    ids=["command", "option", "subcommand"],
)
def test_a_mistyped_word_names_the_nearest(words: list[str], nearest: str) -> None:
    done = _ale(*words)
    assert done.returncode == 2
    assert nearest in done.stderr
    assert "Traceback" not in done.stderr


def test_environments_are_listed_and_shown() -> None:
    listed = _ale("env", "list")
    assert listed.returncode == 0, listed.stderr
    assert "frozen_lake" in listed.stdout
    shown = _ale("env", "show", "frozen_lake")
    assert shown.returncode == 0, shown.stderr
    assert "slippery" in shown.stdout
    assert "## Action space" in shown.stdout


def test_a_traceback_is_shown_on_request_only() -> None:
    assert "Traceback" not in _ale("env", "show", "nowhere").stderr
    assert "Traceback" in _ale("--debug", "env", "show", "nowhere").stderr


def test_the_version_is_that_of_the_package() -> None:
    done = _ale("--version")
    assert (done.returncode, done.stdout) == (0, f"ale {version('ale-rl')}\n"), done.stderr
    assert ale.__version__ == version("ale-rl")


def test_training_shows_the_everyday_options_first() -> None:
    shown = _ale("train", "--help").stdout
    first, *further = shown.split("╭─")[1:]
    assert {"--env", "--algo", "--model", "--steps", "--seed", "--run", "--resume", "--help"} == {
        word for word in first.split() if word.startswith("--")
    }
    assert len(further) == 3
