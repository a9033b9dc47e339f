"""Sokoban as a text environment. Made by the env host through `ENV.factory`; one episode at a time, no randomness."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from rock_env.env import Env, Info, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InvalidArgument
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.sokoban.board import Board
from sandboxes.sokoban.level import DIRECTIONS, SYMBOLS, check_level, render, unrender
from sandboxes.sokoban.params import SokobanParams, narrow, symbols_in

__all__ = ["Sokoban", "direction_of", "make"]

STEP_REWARD, BOX_REWARD, SOLVED_REWARD = -0.1, 1.0, 10.0
"""gym-sokoban's and ROLL's: every turn, per box onto (minus: off) a target, and when all are on."""

_EXACT = {word: number for number, word in enumerate(DIRECTIONS)}
_WORD = re.compile(r"(?<![a-z])(?:up|down|left|right)(?![a-z])", re.IGNORECASE | re.ASCII)


def direction_of(action: str) -> int | None:
    """Return the direction of the last direction word in `action`, or None when there is none."""
    words = _WORD.findall(action)
    return _EXACT[words[-1].lower()] if words else None


class Sokoban:
    """The player pushes every box onto a target. Implements `rock_env.env.Env`."""

    def __init__(self, params: SokobanParams) -> None:
        self._params = params
        self._symbols = params.symbols
        self._max_turns = params.turn_limit
        self._board: Board | None = None
        self._turn = 0

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Start `task`; `seed` changes nothing here. Raise `InvalidArgument` if its payload is no level."""
        check_level(task.payload, f"the payload of task {task.id!r}")
        self._symbols = symbols_in(self._params, task.split)
        self._board = Board(render(task.payload, self._symbols), SYMBOLS[self._symbols])
        self._turn = 0
        return self._board.text, {}

    def step(self, action: str) -> StepResult:
        """Apply one action; after the end nothing changes any more and the reward is 0."""
        board = self._playing()
        if not board.boxes_off or self._turn >= self._max_turns:
            return self._result(board, 0.0)
        direction = _EXACT.get(action)
        if direction is None:
            direction = direction_of(action)
        self._turn += 1
        if direction is None:
            return replace(self._result(board, STEP_REWARD), info={"illegal": True})
        reward = STEP_REWARD + BOX_REWARD * board.move(direction)
        return self._result(board, reward if board.boxes_off else reward + SOLVED_REWARD)

    def evaluate(self) -> Verdict:
        """Grade the board: 1.0 with every box on a target, else 0.0."""
        left = self._playing().boxes_off
        return Verdict(0.0 if left else 1.0, not left, f"{left} boxes off target after {self._turn} turns")

    def snapshot(self) -> bytes:
        """Return board, turn and symbols as JSON."""
        values = {"sokoban": self._playing().text, "turn": self._turn, "symbols": self._symbols}
        return json.dumps(values).encode()

    def restore(self, state: bytes) -> str:
        """Continue from a snapshot taken under the same arguments. Raise `InvalidArgument` if it is none."""
        try:
            values = json.loads(state)
            grid, turn = str(values["sokoban"]), int(values["turn"])
            symbols = values.get("symbols", self._params.symbols)
            look = SYMBOLS[symbols]
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(
                f"not a sokoban snapshot: got {state[:40]!r}. Pass the bytes that snapshot() returned."
            ) from error
        check_level(unrender(grid, symbols), "the grid of a sokoban snapshot")
        self._board, self._symbols, self._turn = Board(grid, look), symbols, turn
        return grid

    def reseed(self, seed: int) -> None:
        """Change nothing: Sokoban has no randomness after the task is drawn."""

    def close(self) -> None:
        """Forget the episode."""
        self._board = None

    def _playing(self) -> Board:
        if self._board is None:
            raise FailedPrecondition("sokoban has no episode: call reset or restore first.")
        return self._board

    def _result(self, board: Board, reward: float) -> StepResult:
        solved = not board.boxes_off
        return StepResult(board.text, reward, solved, not solved and self._turn >= self._max_turns)


def make(params: EnvParams) -> Env:
    """Build one environment."""
    return Sokoban(narrow(params))
