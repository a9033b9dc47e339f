"""What all hosted libraries share: arguments, tasks, and an `Env` around one game of theirs.

`Game` is what a library's adapter implements. A game is made anew for every episode, so that nothing of an earlier one is
left in it, and is called with the random states of its own episode.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Generic, Protocol, TextIO, TypeVar

from pydantic import field_validator

from rock_env.env import Env, Info, Oracle, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InvalidArgument, RockError, Unimplemented, nearest
from rock_env.spec import EnvParams, EnvSpec, TaskSpec
from rock_env.tasks import check_index
from sandboxes.libraries.chance import OwnChance

__all__ = ["Game", "Library", "LibraryEnv", "LibraryParams", "SeedTasks", "scalars"]

P = TypeVar("P", bound="LibraryParams")

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,127}")
_FIRST_HELD_OUT = 1_000_000
_HELD_OUT = 10_000
_MOST_OBSERVED = 1 << 16
"""Characters of a first observation. An image as numbers is longer, and no text policy reads it."""
_MOST_SAID = 300
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m|\*{3,}|\s+")


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


class SeedTasks:
    """The library's seeds as tasks: train/N is seed N, held_out/N is seed 1,000,000 + N."""

    splits: tuple[str, ...] = ("train", "held_out")
    _ranges: Mapping[str, tuple[int, int]] = {
        "train": (0, _FIRST_HELD_OUT),
        "held_out": (_FIRST_HELD_OUT, _HELD_OUT),
    }

    def __init__(self, instruction: str) -> None:
        self._instruction = instruction

    def count(self, split: str) -> int:
        """Return how many tasks `split` has. Raise `UnknownName` for an unknown split."""
        if split not in self._ranges:
            raise nearest("split", split, self._ranges)
        return self._ranges[split][1]

    def get(self, split: str, index: int) -> TaskSpec:
        """Return task `index` of `split`. Raise `InvalidArgument` when out of range."""
        check_index(split, index, self.count(split))
        seed = self._ranges[split][0] + index
        return TaskSpec(f"{split}/{index}", split, index, self._instruction, str(seed))


class Game(Protocol):
    """One game of a library, not yet started."""

    def reset(self, seed: int) -> tuple[str, Info]:
        """Start it with the library's seed."""
        ...

    def step(self, action: str) -> StepResult:
        """Apply an action; one that the library cannot take is a turn with `info["illegal"]`."""
        ...

    def reseed(self, seed: int) -> None:
        """Let its own random generator, if it has one, go on from a seed."""
        ...

    def passed(self, total: float) -> bool:
        """Return whether an episode that ended with this return was a success."""
        ...

    def action(self) -> str:
        """Return a random action."""
        ...

    def close(self) -> None:
        """Free it."""
        ...


class LibraryEnv:
    """An episode of a library's game. Implements `rock_env.env.Env`, without snapshots."""

    def __init__(self, name: str, make_game: Callable[[TaskSpec], Game]) -> None:
        self._name = name
        self._make_game = make_game
        self._game: Game | None = None
        self._chance = OwnChance()
        self._total = 0.0
        self._turns = 0
        self._done = False

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Start the library's episode of the task's seed; another `seed` than 0 changes the chance that comes after.

        Raise `InvalidArgument` if the library cannot make it here, or if no text policy could read what is observed.
        """
        self.close()
        own = int(task.payload)
        with self._chance.held(own), _making(self._name):
            self._game = self._make_game(task)
            observation, info = self._game.reset(own)
        if len(observation) > _MOST_OBSERVED:
            raise InvalidArgument(
                f"{self._name} observes {len(observation)} characters at once, at most {_MOST_OBSERVED} can be read by a "
                "policy of text. Wrap it in an environment of your own that says in words what is to be seen."
            )
        self._total, self._turns, self._done = 0.0, 0, False
        if seed:
            self.reseed(seed)
        return observation, info

    def step(self, action: str) -> StepResult:
        """Apply one action."""
        game = self._playing()
        with self._chance.held(), _silent():
            result = game.step(action)
        self._turns += 1
        self._total += result.reward
        self._done = result.terminated or result.truncated
        return result

    def evaluate(self) -> Verdict:
        """Grade: the episode's return so far, passed where it has ended and the library calls that a success."""
        passed = self._done and self._playing().passed(self._total)
        return Verdict(self._total, passed, f"return {self._total:g} in {self._turns} turns")

    def snapshot(self) -> bytes:
        """Raise `Unimplemented`: a checkpoint is the recorded actions."""
        raise Unimplemented(f"{self._name} has no snapshots: reset it with a prefix of its actions.")

    def restore(self, state: bytes) -> str:
        """Raise `Unimplemented`, as `snapshot`."""
        raise Unimplemented(f"{self._name} has no snapshots: reset it with a prefix of its actions.")

    def reseed(self, seed: int) -> None:
        """Let all chance from here on follow from `seed`."""
        game = self._playing()
        with self._chance.held(seed):
            game.reseed(seed)

    def close(self) -> None:
        """Free the game."""
        game, self._game = self._game, None
        if game is not None:
            with self._chance.held(), _silent():
                game.close()

    def _playing(self) -> Game:
        if self._game is None:
            raise FailedPrecondition(f"{self._name} has no episode: call reset first.")
        return self._game


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

    def _check_known(self, env_id: str) -> None:
        known = self.ids()
        if env_id not in known:
            raise nearest(f"environment of {self.name}", env_id, known)

    def _warm(self, env_id: str) -> None:
        self._check_known(env_id)
        with _making(f"{self.name}:{env_id}"):
            self.prepare(env_id)

    def _make(self, env_id: str, params: P) -> Env:
        self._warm(env_id)
        return LibraryEnv(f"{self.name}:{env_id}", partial(self.game, env_id, params))

    def _random_player(self, env_id: str, params: P, task: TaskSpec) -> Oracle:
        """Return a policy of random actions, as the library offers them in a game of its own. Raise `InvalidArgument`."""
        chance = OwnChance()
        seed = int(task.payload)
        with chance.held(seed), _making(f"{self.name}:{env_id}"):
            game = self.game(env_id, params, task)
            game.reset(seed)

        def act(observation: str) -> str:
            with chance.held():
                return game.action()

        return act


@contextlib.contextmanager
def _making(name: str) -> Iterator[None]:
    try:
        with _silent():
            yield
    except RockError:
        raise
    except Exception as error:  # named boundary: a library's own code
        raise InvalidArgument(
            f"{name} cannot be made here: {type(error).__name__}: {_said(error)}. Install what it needs where the "
            "environments run, or correct its arguments."
        ) from error


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep what libraries print out of the server's log."""
    with contextlib.redirect_stdout(_nowhere()):
        yield


@cache
def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")  # once: an answer is played where no file may be opened to be written


def _said(error: Exception) -> str:
    return _ESCAPES.sub(" ", str(error)).strip()[:_MOST_SAID].rstrip(". ")


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


def scalars(info: Mapping[str, Any]) -> Info:
    """Return the part of a library's info that a record can hold."""
    return {str(key): value for key, value in info.items() if isinstance(value, str | int | float | bool)}
