"""A group of commands whose modules are imported when a command is asked for; its own `--help` needs none of them."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from trainer.signals import held

__all__ = ["LazyGroup", "Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command is."""

    at: str
    """`MODULE:NAME` of a function, or of a `Typer` for a group of them."""
    help: str
    """As the group's help shows it: the first line of the command's own."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of Click, for a function."""


class _Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is looked up."""

    def __init__(self, loaded: Mapping[str, Any], places: Mapping[str, Place]) -> None:
        self._loaded = dict(loaded)
        self._names = (*loaded, *places)
        self._places = places

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self._places[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _load(name: str, place: Place) -> Any:
    with held():
        module, _, attribute = place.at.partition(":")
        found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name, context_settings={**place.settings})(found)
        command = typer.main.get_command(alone)
    command.name = name
    return command


class LazyGroup(TyperGroup):
    """A group with commands of its own, and those of `places`; subclasses say which."""

    places: ClassVar[Mapping[str, Place]]

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._own = dict(self.commands)
        self.commands: Any = _Commands(self._own, self.places)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names: its own, then those of `places`, in their order."""
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show the group's help, importing no command."""
        super(LazyGroup, self._as_listed()).format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete the names of commands, importing none of them."""
        ctx.command = self._as_listed()
        return super().shell_complete(ctx, incomplete)

    def _as_listed(self) -> LazyGroup:
        """Return this group with a name and a line of help, and nothing else, for each command of `places`."""
        listed = copy.copy(self)
        stubs = {name: TyperCommand(name, help=place.help) for name, place in self.places.items()}
        listed.commands = self._own | stubs
        return listed
