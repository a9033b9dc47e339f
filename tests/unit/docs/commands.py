"""The `ale` command lines that a page shows, and the real application to parse them with."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer.main
from pages import blocks, prose

from ale.cli import app

SHELLS = {"", "sh", "bash", "console", "shell"}
_ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=")


def commands_of(text: str) -> Iterator[list[str]]:
    """The commands of shell text, each as its words: comments, pipes, redirections and assignments are taken off."""
    for line in text.replace("\\\n", " ").split("\n"):
        reader = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        reader.whitespace_split = True
        try:
            words = list(reader)
        except ValueError:  # a quote that goes on over lines: no command line of its own
            continue
        command: list[str] = []
        for word in [*words, ";"]:
            if word and set(word) <= set("|&;<>"):
                while command and _ASSIGNMENT.match(command[0]):
                    command.pop(0)
                if command:
                    yield command
                command = []
            else:
                command.append(word)


def shown_commands(page: Path) -> Iterator[list[str]]:
    """The complete `ale` commands in the page's shell blocks, without the word `ale`."""
    for block in blocks(page):
        if block.language in SHELLS:
            for words in commands_of(block.text):
                if Path(words[0]).name == "ale":
                    yield words[1:]


def named_commands(page: Path) -> Iterator[list[str]]:
    """The `ale` commands that prose names in code spans; they may lack arguments."""
    for span in re.findall(r"(?<!`)`(ale [^`\n]+)`(?!`)", prose(page)):
        for words in commands_of(span.replace("\\|", "|")):
            if words[0] == "ale":
                yield words[1:]


_OF_THE_PROGRAM = {
    "...",
    "…",
    "COMMAND",
    "--help",
    "--debug",
    "--version",
    "--install-completion",
    "--show-completion",
}
"""What stands for more words, and options that the program itself takes and ends with."""


@cache
def _program() -> Any:
    return typer.main.get_command(app)


class Refused(Exception):
    """The program would not take a command line; `kind` is the name of its error."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def parse(words: list[str]) -> dict[str, Any]:
    """Parse as the program would, and run nothing; return the options and arguments. Raise `Refused`."""
    rest = [word for word in words if word not in _OF_THE_PROGRAM]
    command = _program()
    context: Any = command.make_context("ale", [], resilient_parsing=True)
    try:
        while rest and hasattr(command, "resolve_command"):
            context.resilient_parsing = False
            name, command, rest = command.resolve_command(context, rest)
            group = hasattr(command, "resolve_command")
            context = command.make_context(
                name, [] if group else rest, parent=context, resilient_parsing=group
            )
    except Exception as error:  # typer brings click, or a copy of its own: their classes are told by name
        if "UsageError" not in {kind.__name__ for kind in type(error).__mro__}:
            raise
        raise Refused(type(error).__name__, str(error)) from error
    with context:  # what a command chooses as it is parsed ends with it
        return dict(context.params)
