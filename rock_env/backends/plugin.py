"""What a backend plugin is, and the backends that an operator asked for, found by entry point `ale.backends`.

The built-in ones come in by the same door. It makes backends and starts nothing; which sandbox goes to which backend says
`backends/router`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from rock_env.arguments import problem
from rock_env.backends.base import Backend, Isolation
from rock_env.errors import InvalidArgument, nearest
from rock_env.plugins import load

__all__ = ["BackendOptions", "BackendPlace", "BackendSpec", "ChosenBackend", "choose_backends"]

GROUP = "ale.backends"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)


class BackendOptions(BaseModel):
    """Base of a backend's own options: frozen, unknown names refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True)
class BackendPlace:
    """What a server gives each of its backends."""

    root: Path | None = None
    """A folder of this backend alone, kept over restarts; None where no sandbox outlives the server."""
    shared: bool = False
    """Other servers of one store use `root` at the same time, each with boxes of its own."""
    shelf: Path | None = None
    """A folder that every box sees, read-only."""
    isolation: Isolation = "auto"
    """How boxes without an image are fenced in: `namespaces` refuses to run without them."""
    secret: Callable[[], Awaitable[bytes]] | None = None
    """Gives, once the store is open, 32 bytes that all servers of a shared store have and nobody else; None where the
    store is this server's alone."""


@dataclass(frozen=True, slots=True)
class BackendSpec:
    """A backend plugin: the value of an `ale.backends` entry point."""

    name: str
    """That of its entry point and of its backend, which is written into records."""
    summary: str
    build: Callable[[BackendPlace, Any], Backend]
    """Takes the server's place and an instance of `options`. Opens nothing: an engine that is missing is said by the
    backend's methods."""
    options: type[BackendOptions] = BackendOptions
    uses_registry: bool = False
    """Its images are those of this machine's Docker engine, which the server's image registry builds and names."""


@dataclass(frozen=True, slots=True)
class ChosenBackend:
    """A backend that an operator asked for, with its options."""

    spec: BackendSpec
    options: BackendOptions

    def build(self, place: BackendPlace) -> Backend:
        """Make the backend. Raise `InvalidArgument` where it does not bear the name of its plugin."""
        backend = self.spec.build(place, self.options)
        if backend.name != self.spec.name:
            raise InvalidArgument(
                f"the backend plugin {self.spec.name!r} made a backend with the name {backend.name!r}, expected its own: "
                "records and state folders go by it. Correct the plugin."
            )
        return backend


def choose_backends(wishes: Sequence[str]) -> list[ChosenBackend]:
    """Load the backends that `NAME` or `NAME:KEY=VALUE,KEY=VALUE` ask for, in order.

    Raise `UnknownName` listing the installed ones, or `InvalidArgument`.
    """
    chosen = [_chosen(*wish.partition(":")[::2]) for wish in wishes]
    names = [one.spec.name for one in chosen]
    if len(set(names)) != len(names):
        raise InvalidArgument(f"each backend can be asked for once, got --backend {', '.join(names)}.")
    return chosen


def _chosen(name: str, options: str) -> ChosenBackend:
    spec = load(GROUP, name)
    if not isinstance(spec, BackendSpec):
        raise InvalidArgument(
            f"the backend plugin {name!r} is not a BackendSpec: got {type(spec).__name__}. Its entry point must name an "
            "object of type rock_env.backends.plugin.BackendSpec."
        )
    if spec.name != name or not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"the backend plugin {name!r} calls itself {spec.name!r}, expected one name of up to 64 of a-z, 0-9, '_' and "
            "'-' for both. Correct the plugin."
        )
    return ChosenBackend(spec, _options(spec, options))


def _options(spec: BackendSpec, text: str) -> BackendOptions:
    values = {}
    for part in text.split(",") if text else ():
        key, equals, value = part.partition("=")
        if not (key and equals):
            raise InvalidArgument(
                f"--backend expects NAME or NAME:KEY=VALUE,KEY=VALUE, got {part!r} among the options of {spec.name!r}."
            )
        values[key] = value
    try:
        return spec.options.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise nearest(f"option of the {spec.name} backend", key, spec.options.model_fields) from error
        raise InvalidArgument(
            f"bad option {key!r} of the backend {spec.name!r}: {problem(error)}."
        ) from error
