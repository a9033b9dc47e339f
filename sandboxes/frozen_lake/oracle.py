"""The best possible play of FrozenLake: shortest path on firm ice, exact value iteration on slippery ice.

Called through `ENV.oracle` and `ENV.optimum`. The success probability counts exactly `max_turns` turns
(finite horizon), so `optimum` is what an optimal agent really scores. Shapes: S cells, A = 4 directions,
K outcomes.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from rock_env.env import Oracle
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.frozen_lake.lake import DIRECTIONS, PLAYER, moves, slips
from sandboxes.frozen_lake.params import narrow

__all__ = ["make_oracle", "optimum", "transitions"]

PREFERENCE = (2, 1, 3, 0)
"""Among equally good moves: right, down, up, left. One fixed order makes the oracle easier to imitate."""
TIE = 1e-12
"""Float noise of summing three products; real differences of success probability are far larger."""

Float = NDArray[np.float64]
Int = NDArray[np.int64]


def transitions(text: str, slippery: bool) -> Int:
    """Return the next cells [S, A, K], K equally likely outcomes; holes and the goal lead to themselves."""
    size = text.index("\n")
    table = np.array(slips(size) if slippery else moves(size)).reshape(size * size, 4, -1)
    ends = np.flatnonzero(np.isin(list(text.replace("\n", "")), ["H", "G"]))
    table[ends] = ends[:, None, None]
    return table


@lru_cache(maxsize=256)
def _solve(text: str, slippery: bool, max_turns: int) -> tuple[Float, NDArray[np.int8]]:
    """Return success probability [S] with all turns left, and the best direction [turns left - 1, S]."""
    next_SAK = transitions(text, slippery)
    letters = text.replace("\n", "")
    value_S = np.array([1.0 if letter == "G" else 0.0 for letter in letters])
    nearness_SA = _nearness(next_SAK, letters.index("G")) if not slippery else np.zeros(next_SAK.shape[:2])
    best_TS = np.empty((max_turns, len(letters)), np.int8)
    order = np.array(PREFERENCE)
    for turns_left in range(max_turns):
        score_SA = value_S[next_SAK].mean(-1)
        value_S = score_SA.max(-1)
        # Any detour that still arrives in time ties on success: break ties by the distance to the goal.
        tied_SA = np.where(score_SA >= value_S[:, None] - TIE, nearness_SA, -np.inf)
        best_TS[turns_left] = order[tied_SA[:, order].argmax(-1)]
    return value_S, best_TS


def _nearness(next_SAK: Int, goal: int) -> Float:
    """Return minus the number of moves left after each move [S, A]; -1e9 where the goal cannot be reached."""
    next_SA = next_SAK[:, :, 0]
    distance_S = np.full(len(next_SA), 1e9)
    distance_S[goal] = 0.0
    while True:
        closer_S = np.minimum(distance_S, distance_S[next_SA].min(-1) + 1)
        if np.array_equal(closer_S, distance_S):
            return -distance_S[next_SA]
        distance_S = closer_S


class FrozenLakeOracle:
    """Play one task optimally. Counts its calls as turns, so use a new one per episode."""

    def __init__(self, text: str, *, slippery: bool, max_turns: int) -> None:
        self._size = text.index("\n")
        self._turns_left = max_turns
        self._best_TS = _solve(text, slippery, max_turns)[1]

    def __call__(self, observation: str) -> str:
        """Return the best move; after the end, any move.

        Started from a later turn (an anchor), it plays as if all turns were left.
        """
        at = observation.find(PLAYER)
        if at < 0:
            return DIRECTIONS[0]
        self._turns_left = max(1, self._turns_left)
        best = self._best_TS[self._turns_left - 1, at - at // (self._size + 1)]
        self._turns_left -= 1
        return DIRECTIONS[best]


def make_oracle(params: EnvParams, task: TaskSpec) -> Oracle:
    """Return the optimal player of one task."""
    own = narrow(params)
    return FrozenLakeOracle(task.payload, slippery=own.slippery, max_turns=own.turn_limit)


def optimum(params: EnvParams, task: TaskSpec) -> float:
    """Return the success probability of optimal play from the start, within the turn limit."""
    own = narrow(params)
    value_S, _ = _solve(task.payload, own.slippery, own.turn_limit)
    return float(value_S[task.payload.replace("\n", "").index("S")])
