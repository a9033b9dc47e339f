"""Shortest solutions of Sokoban levels: A* over (player, boxes), counted in moves.

Called through `ENV.oracle` and `ENV.optimum`. The bound is the sum over boxes of the pushes to the nearest target,
which never overestimates; cells from which no target can be reached (dead cells) are never pushed onto.
"""

from __future__ import annotations

from functools import lru_cache

from rock_env.env import Oracle
from rock_env.errors import ResourceExhausted
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.sokoban.board import Board
from sandboxes.sokoban.level import CANONICAL, DIRECTIONS, SYMBOLS, SymbolSet, steps
from sandboxes.sokoban.params import narrow, symbols_in

__all__ = ["make_oracle", "optimum", "shortest_solution"]

MAX_STATES = 1_000_000
"""About seven seconds of search and 300 MB; 8x8 with two boxes needs some hundred."""


@lru_cache(maxsize=1024)
def shortest_solution(grid: str, symbols: SymbolSet) -> tuple[str, ...] | None:
    """Return the moves of a shortest solution of a rendered state, () if solved, None if there is none.

    Raise `ResourceExhausted` after `MAX_STATES` states.
    """
    floor = {at for at, cell in enumerate(grid) if cell not in (symbols.wall, "\n")}
    targets = frozenset(at for at in floor if grid[at] in (symbols.target, symbols.box_on, symbols.player_on))
    boxes = frozenset(at for at in floor if grid[at] in (symbols.box, symbols.box_on))
    player = next(at for at in floor if grid[at] in (symbols.player, symbols.player_on))
    directions = steps(grid)
    pushes = _pushes_to_target(floor, targets, directions)
    if not boxes <= pushes.keys():
        return None
    return _search(player, boxes, floor=floor, pushes=pushes, directions=directions)


def _pushes_to_target(
    floor: set[int], targets: frozenset[int], directions: tuple[int, ...]
) -> dict[int, int]:
    """Return for each live cell how many pushes bring a lone box from it to the nearest target."""
    pushes = dict.fromkeys(targets, 0)
    queue = sorted(targets)
    for cell in queue:
        for step in directions:
            before = cell - step
            if before not in pushes and before in floor and before - step in floor:
                pushes[before] = pushes[cell] + 1
                queue.append(before)
    return pushes


State = tuple[int, frozenset[int]]


def _search(
    player: int,
    boxes: frozenset[int],
    *,
    floor: set[int],
    pushes: dict[int, int],
    directions: tuple[int, ...],
) -> tuple[str, ...] | None:
    """Expand states in order of moves made + bound, which no move lowers; latest first among equals."""
    start = (player, boxes)
    parents: dict[State, tuple[State, int]] = {}
    best = {start: 0}
    bound = sum(pushes[box] for box in boxes)
    total = bound
    waiting: dict[int, list[tuple[State, int, int]]] = {total: [(start, 0, bound)]}
    while waiting:
        while total not in waiting:
            total += 1
        state, made, bound = waiting[total].pop()
        if not waiting[total]:
            del waiting[total]
        if best[state] < made:
            continue
        if bound == 0:
            return _moves_to(state, parents)
        player, boxes = state
        for number, step in enumerate(directions):
            cell = player + step
            if cell not in floor:
                continue
            after, bound_after = (cell, boxes), bound
            if cell in boxes:
                beyond = cell + step
                if beyond not in pushes or beyond in boxes:
                    continue
                after = (cell, (boxes - {cell}) | {beyond})
                bound_after += pushes[beyond] - pushes[cell]
            if best.get(after, made + 2) > made + 1:
                best[after] = made + 1
                parents[after] = (state, number)
                waiting.setdefault(made + 1 + bound_after, []).append((after, made + 1, bound_after))
        if len(best) > MAX_STATES:
            raise ResourceExhausted(
                f"no solution found among {MAX_STATES} states: the oracle is for small levels; use fewer boxes."
            )
    return None


def _moves_to(state: State, parents: dict[State, tuple[State, int]]) -> tuple[str, ...]:
    moves: list[str] = []
    while state in parents:
        state, number = parents[state]
        moves.append(DIRECTIONS[number])
    return tuple(reversed(moves))


class SokobanOracle:
    """Play shortest solutions from whatever is observed; plans again only off the planned path."""

    def __init__(self, symbols: SymbolSet) -> None:
        self._symbols = symbols
        self._plan: dict[str, str] = {}

    def __call__(self, observation: str) -> str:
        """Return the next move of a shortest solution; any move where there is none."""
        if observation not in self._plan:
            self._follow(observation)
        return self._plan[observation]

    def _follow(self, grid: str) -> None:
        solution = shortest_solution(grid, self._symbols)
        if not solution:
            self._plan[grid] = DIRECTIONS[0]
            return
        board = Board(grid, self._symbols)
        for move in solution:
            self._plan[board.text] = move
            board.move(DIRECTIONS.index(move))


def make_oracle(params: EnvParams, task: TaskSpec) -> Oracle:
    """Return a player of shortest solutions; of `task` it needs the symbols, the observation shows everything else."""
    return SokobanOracle(SYMBOLS[symbols_in(narrow(params), task.split)])


def optimum(params: EnvParams, task: TaskSpec) -> float:
    """Return 1.0 if the level can be solved within the turn limit, else 0.0.

    Generated levels need no search unless the limit is below what their generator guarantees.
    """
    own = narrow(params)
    if own.boxoban_file is None and own.turn_limit >= own.shape.moves:
        return 1.0
    solution = shortest_solution(task.payload, CANONICAL)
    return 1.0 if solution is not None and len(solution) <= own.turn_limit else 0.0
