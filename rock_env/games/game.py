"""A game as an `Env`: its seeds are the tasks, and it is called with the random states of its own episode.

`Game` is what an adapter implements: `sandboxes.libraries` for other libraries, `rock_env.games.own` for a class. A game is
made anew for every episode, so that nothing of an earlier one is left in it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TextIO

from rock_env.env import Info, Oracle, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InvalidArgument, RockError, Unimplemented, nearest
from rock_env.games.chance import OwnChance
from rock_env.spec import TaskSpec
from rock_env.tasks import check_index

__all__ = ["Game", "GameEnv", "SeedTasks", "hear", "making", "random_player", "scalars"]

_FIRST_HELD_OUT = 1_000_000
_HELD_OUT = 10_000
_MOST_OBSERVED = 1 << 16
"""Characters of a first observation. An image as numbers is longer, and no text policy reads it."""
_MOST_SAID = 300
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m|\*{3,}|\s+")


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
    """One game of a library or of a user's class, not yet started."""

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


class GameEnv:
    """An episode of a game. Implements `rock_env.env.Env`, without snapshots."""

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
        with self._chance.held(own), making(self._name):
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
        game = self.playing()
        with self._chance.held(), silent():
            result = game.step(action)
        self._turns += 1
        self._total += result.reward
        self._done = result.terminated or result.truncated
        return result

    def evaluate(self) -> Verdict:
        """Grade: the episode's return so far, passed where it has ended and the library calls that a success."""
        passed = self._done and self.playing().passed(self._total)
        return Verdict(self._total, passed, f"return {self._total:g} in {self._turns} turns")

    def snapshot(self) -> bytes:
        """Raise `Unimplemented`: a checkpoint is the recorded actions."""
        raise Unimplemented(f"{self._name} has no snapshots: reset it with a prefix of its actions.")

    def restore(self, state: bytes) -> str:
        """Raise `Unimplemented`, as `snapshot`."""
        raise Unimplemented(f"{self._name} has no snapshots: reset it with a prefix of its actions.")

    def reseed(self, seed: int) -> None:
        """Let all chance from here on follow from `seed`."""
        game = self.playing()
        with self._chance.held(seed):
            game.reseed(seed)

    def close(self) -> None:
        """Free the game."""
        game, self._game = self._game, None
        if game is not None:
            with self._chance.held(), silent():
                game.close()

    def playing(self) -> Game:
        if self._game is None:
            raise FailedPrecondition(f"{self._name} has no episode: call reset first.")
        return self._game


def random_player(name: str, make_game: Callable[[], Game], task: TaskSpec) -> Oracle:
    """Return a policy of random actions, as a game of the task, in which nothing is played, offers them.

    Raise `InvalidArgument` as `making`.
    """
    chance = OwnChance()
    seed = int(task.payload)
    with chance.held(seed), making(name):  # one at a time: both change what the whole process has
        game = make_game()
        game.reset(seed)

    def act(observation: str) -> str:
        with chance.held():
            return game.action()

    return act


@contextlib.contextmanager
def making(name: str) -> Iterator[None]:
    """Let what a library raises be an `InvalidArgument` that says what `name` cannot do here, in the library's own words."""
    try:
        with silent():
            yield
    except RockError:
        raise
    except Exception as error:  # named boundary: a library's own code
        raise InvalidArgument(
            f"{name} cannot be made here: {type(error).__name__}: {_said(error)}. Install what it needs where the "
            "environments run, or correct its arguments."
        ) from error


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Keep what libraries and classes print out of the server's log, unless somebody debugs them in this process."""
    with contextlib.nullcontext() if _heard else contextlib.redirect_stdout(_nowhere()):
        yield


def hear() -> None:
    """Let what is printed in this process be seen from now on: a person debugs in it."""
    global _heard
    _heard = True


_heard = False


@cache
def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")  # once: an answer is played where no file may be opened to be written


def _said(error: Exception) -> str:
    return _ESCAPES.sub(" ", str(error)).strip()[:_MOST_SAID].rstrip(". ")


def scalars(info: Mapping[str, Any]) -> Info:
    """Return the part of a library's info that a record can hold."""
    return {str(key): value for key, value in info.items() if isinstance(value, str | int | float | bool)}
