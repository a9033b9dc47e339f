"""FrozenLake as a text environment. Made by the env host through `ENV.factory`; one episode at a time.

`step` takes about a microsecond: what a cell looks like is remembered per map, for all environments together.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from random import Random

from rock_env.env import Env, Info, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InvalidArgument
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.frozen_lake.lake import DIRECTIONS, Lake, lake, moves, slips
from sandboxes.frozen_lake.params import FrozenLakeParams, narrow

__all__ = ["FrozenLake", "direction_of", "make"]

_EXACT = {word: number for number, word in enumerate(DIRECTIONS)}
_WORD = re.compile(r"(?<![a-z])(?:left|down|right|up)(?![a-z])", re.IGNORECASE | re.ASCII)


def direction_of(action: str) -> int | None:
    """Return the direction of the last direction word in `action`, or None when there is none."""
    words = _WORD.findall(action)
    return _EXACT[words[-1].lower()] if words else None


class FrozenLake:
    """The player walks from S to G; falling into a hole ends the episode. Implements `rock_env.env.Env`."""

    def __init__(self, params: FrozenLakeParams) -> None:
        self._params = params
        self._slippery = params.slippery
        self._max_turns = params.turn_limit
        self._lake: Lake | None = None
        self._map = ""
        self._next: tuple[int, ...] = ()
        self._cell = 0
        self._turn = 0
        self._over = False
        self._rng = Random(0)
        self._seed = 0
        self._draws = 0

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Start `task`; the slips follow from `seed`. Raise `InvalidArgument` if its payload is no map."""
        self._place(task.payload)
        self.reseed(seed)
        return self._here().result(self._cell).observation, {}

    def step(self, action: str) -> StepResult:
        """Apply one action; after the end nothing changes any more and the reward is 0."""
        here = self._here()
        if self._over:
            return self._ended(here)
        direction = _EXACT.get(action)
        if direction is None:
            direction = direction_of(action)
        self._turn += 1
        if direction is None:
            result = replace(here.result(self._cell), info={"illegal": True})
        else:
            at = 4 * self._cell + direction
            if self._slippery:
                self._draws += 1
                at = 3 * at + int(3 * self._rng.random())
            self._cell = self._next[at]
            result = here.result(self._cell)
        if result.terminated:
            self._over = True
        elif self._turn >= self._max_turns:
            self._over = True
            result = replace(result, truncated=True)
        return result

    def evaluate(self) -> Verdict:
        """Grade the position: 1.0 on the goal, else 0.0."""
        passed = self._cell == self._here().goal
        return Verdict(1.0 if passed else 0.0, passed, f"cell {self._cell} after {self._turn} turns")

    def snapshot(self) -> bytes:
        """Return map, position, turn and random state as JSON: a seed and how often it was drawn from."""
        self._here()
        state = {
            "frozen_lake": self._map,
            "cell": self._cell,
            "turn": self._turn,
            "seed": self._seed,
            "draws": self._draws,
        }
        return json.dumps(state).encode()

    def restore(self, state: bytes) -> str:
        """Continue from a snapshot taken under the same arguments. Raise `InvalidArgument` if it is none."""
        try:
            values = json.loads(state)
            text, cell, turn = str(values["frozen_lake"]), int(values["cell"]), int(values["turn"])
            seed, draws = int(values["seed"]), int(values["draws"])
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(
                f"not a frozen_lake snapshot: got {state[:40]!r}. Pass the bytes that snapshot() returned."
            ) from error
        self._place(text)
        if not 0 <= cell < len(self._here().letters):
            raise InvalidArgument(
                f"a frozen_lake snapshot is corrupt: cell {cell} is not on its map {text!r}."
            )
        self.reseed(seed)
        for _ in range(draws):
            self._rng.random()
        self._draws, self._cell, self._turn = draws, cell, turn
        result = self._here().result(cell)
        self._over = result.terminated or turn >= self._max_turns
        return result.observation

    def reseed(self, seed: int) -> None:
        """Make the slips from here on follow from `seed`."""
        self._seed, self._draws = seed, 0
        if self._slippery:
            self._rng = Random(seed)

    def close(self) -> None:
        """Forget the episode."""
        self._lake = None

    def _place(self, text: str) -> None:
        self._lake = lake(text, self._params.symbols)
        self._map = text
        self._next = slips(self._lake.size) if self._slippery else moves(self._lake.size)
        self._cell, self._turn, self._over = self._lake.start, 0, False

    def _here(self) -> Lake:
        if self._lake is None:
            raise FailedPrecondition("frozen_lake has no episode: call reset or restore first.")
        return self._lake

    def _ended(self, here: Lake) -> StepResult:
        result = here.result(self._cell)
        return StepResult(result.observation, 0.0, result.terminated, truncated=not result.terminated)


def make(params: EnvParams) -> Env:
    """Build one environment."""
    return FrozenLake(narrow(params))
