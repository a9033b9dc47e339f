"""What all hosted libraries share: names, versions, arguments. An adapter makes its library's games (`rock_env.games`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Generic, TypeVar

from pydantic import field_validator

from rock_env.env import Env, Oracle
from rock_env.errors import InvalidArgument, UnknownName, nearest
from rock_env.games.game import Game, GameEnv, SeedTasks, making, random_player
from rock_env.spec import EnvParams, EnvSpec, TaskSpec

__all__ = ["Library", "LibraryParams"]

P = TypeVar("P", bound="LibraryParams")

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")


class LibraryParams(EnvParams):
    arguments: str = "{}"
    """Arguments for the library's own `make`, as a JSON object."""

    @field_validator("arguments")
    @classmethod
    def _is_object(cls, text: str) -> str:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"arguments must be a JSON object: {error}") from error
        if not isinstance(found, dict):
            raise ValueError(f"arguments must be a JSON object, got a {type(found).__name__}")
        return text

    def given(self) -> dict[str, Any]:
        """Return the arguments for the library."""
        found: dict[str, Any] = json.loads(self.arguments)
        return found


@dataclass(frozen=True, slots=True)
class Library(Generic[P]):
    """A library's environments. Implements `rock_env.spec.EnvLibrary`; nothing of the library is imported to name one."""

    name: str
    """Of the entry point."""
    package: str
    """That brings it."""
    params: type[P]
    game: Callable[[str, P, TaskSpec], Game]
    """Make the game of an id for a task."""
    known: Callable[[], tuple[str, ...]]
    """Import the library and return its ids, sorted."""
    prepare: Callable[[str], None]
    """Import what an id's games need. Raise anything where something is missing."""
    summary: str
    """`{id}` in it is the id."""
    instruction: str
    """Likewise."""
    bring: Callable[[str], str] = str
    """Import what has to be imported before the library knows an id, and return the id as `known` has it."""
    elsewhere: str = ""
    """What to say of an id that it does not know: where others come from."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why ids that match a pattern are not hosted, by pattern."""

    def spec(self, env_id: str) -> EnvSpec:
        """Return the environment of an id. Raise `InvalidArgument` as `EnvLibrary.spec`."""
        _check_id(self.name, env_id)
        if why := self._why_left_out(env_id):
            raise InvalidArgument(
                f"{self.name}:{env_id} is not hosted: {why}. `ale env list --library {self.name}` lists those that are."
            )
        instruction = self.instruction.format(id=env_id)
        return EnvSpec(
            name=f"{self.name}:{env_id}",
            version=_version_of(self.name, self.package),
            summary=self.summary.format(id=env_id),
            params=self.params,
            factory=partial(self._make, env_id),
            tasks=lambda _: SeedTasks(instruction),
            explorer=partial(self._random_player, env_id),
            library=self.name,
            warm=partial(self._warm, env_id),
        )

    def _why_left_out(self, env_id: str) -> str:
        return next((why for pattern, why in self.left_out.items() if fnmatchcase(env_id, pattern)), "")

    def ids(self) -> tuple[str, ...]:
        """Import the library and return the ids that are hosted. Raise `InvalidArgument` where it is not installed."""
        _version_of(self.name, self.package)
        return tuple(env_id for env_id in self.known() if not self._why_left_out(env_id))

    def _warm(self, env_id: str) -> None:
        _version_of(self.name, self.package)
        with making(f"{self.name}:{env_id}"):
            brought = self.bring(env_id)
        known = self.ids()
        if brought not in known:
            error = nearest(f"environment of {self.name}", brought, known)
            raise UnknownName(f"{error.message}.{self.elsewhere}")
        with making(f"{self.name}:{env_id}"):
            self.prepare(brought)

    def _make(self, env_id: str, params: P) -> Env:
        self._warm(env_id)
        return GameEnv(f"{self.name}:{env_id}", partial(self.game, env_id, params))

    def _random_player(self, env_id: str, params: P, task: TaskSpec) -> Oracle:
        """Return a policy of random actions, as the library offers them in a game of its own. Raise `InvalidArgument`."""
        return random_player(f"{self.name}:{env_id}", partial(self.game, env_id, params, task), task)


def _check_id(library: str, env_id: str) -> None:
    """Raise `InvalidArgument` for a text that can be no id of a library."""
    if not _ID.fullmatch(env_id):
        raise InvalidArgument(
            f"bad environment {library}:{env_id[:128]!r}: expected {library}:ID, where ID has 1 to 128 letters, digits and "
            f"the signs _ . : / -. `ale env list --library {library}` lists them."
        )


@cache
def _version_of(library: str, package: str) -> str:
    """Return the version of an installed package. Raise `InvalidArgument` where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        raise InvalidArgument(
            f"the environments of {library} come with the package {package}, which is not installed here: "
            f"`pip install {package}`, also where the server runs."
        ) from None
