"""Draw Sokoban levels that are solvable by construction: carve a room, then play backwards from the solved state.

Equal seeds give equal levels. Every pull is a push played backwards, so the pulls and the walks between them are a
solution; levels whose known solution exceeds `moves` are never built.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from rock_env.errors import InvalidArgument
from sandboxes.sokoban.level import steps

__all__ = ["Shape", "random_level"]

MAX_ROOMS = 5000
"""One room in two hundred fits three boxes into 6x6; after this many the arguments are hopeless."""
FLOOR_SHARE = (0.6, 0.95)
"""How much of the interior is floor: between Boxoban's narrow rooms and an open hall."""
PULLS = (3, 12)
"""Pulls per box, the fewest and the most that are tried: fewer make levels that any player stumbles through."""
TURN_PROBABILITY = 0.35
"""How often the carver turns: long corridors below, blobs above."""


class Shape(NamedTuple):
    """The size of generated levels and the number of moves that surely solve each."""

    rows: int
    cols: int
    boxes: int
    moves: int


def random_level(shape: Shape, seed: int) -> str:
    """Return a canonical level that at most `shape.moves` moves solve, with every box off its target.

    Raise `InvalidArgument` when no room of this size holds that many boxes.
    """
    rows, cols, boxes, moves = shape
    rng = Random(seed)
    for _ in range(MAX_ROOMS):
        room = _carve(rows, cols, rng)
        floor = [at for at, cell in enumerate(room) if cell == " "]
        if len(floor) < 2 * boxes + 2:
            continue
        level = _play_backwards(room, rng.sample(floor, boxes + 1), moves, rng)
        if level:
            return level
    raise InvalidArgument(
        f"no solvable {rows}x{cols} level with {boxes} boxes in {MAX_ROOMS} rooms: "
        "lower boxes or raise rows and cols."
    )


def _carve(rows: int, cols: int, rng: Random) -> list[str]:
    """Dig floor into solid wall by a random walk with a brush of two cells. Cells of the text, newlines included."""
    room = list("\n".join(["#" * cols] * rows))
    directions = steps("#" * cols + "\n")
    inside = [row * (cols + 1) + column for row in range(1, rows - 1) for column in range(1, cols - 1)]
    interior = set(inside)
    goal = max(3, round(len(inside) * rng.uniform(*FLOOR_SHARE)))
    at = rng.choice(inside)
    heading = rng.choice(directions)
    dug = 0
    while dug < goal:
        brush = (at, at + rng.choice(directions))
        for cell in brush:
            if cell in interior and room[cell] == "#":
                room[cell] = " "
                dug += 1
        if rng.random() < TURN_PROBABILITY or at + heading not in interior:
            heading = rng.choice(directions)
        if at + heading in interior:
            at += heading
    return room


def _play_backwards(room: list[str], cells: list[int], moves: int, rng: Random) -> str:
    """Pull the boxes off their targets; return the level, or "" where that leads nowhere."""
    *targets, player = cells
    boxes = set(targets)
    directions = steps("".join(room))
    pulls = 0
    wanted = sum(rng.randint(*PULLS) for _ in targets)
    seen = {frozenset(boxes)}
    while True:
        walk = _walks(room, player, boxes, directions)
        options = [
            (box, step)
            for box in sorted(boxes)
            for step in directions
            if walk.get(box + step, moves) + 1 <= moves
            and room[box + 2 * step] == " "
            and box + 2 * step not in boxes
            and (boxes - {box}) | {box + step} not in seen
        ]
        if not options or pulls == wanted:
            break
        box, step = rng.choice(options)
        boxes = (boxes - {box}) | {box + step}
        seen.add(frozenset(boxes))
        moves -= walk[box + step] + 1
        player = box + 2 * step
        pulls += 1
    if boxes & set(targets) or pulls < PULLS[0] * len(targets):
        return ""
    player = rng.choice(sorted(cell for cell, distance in walk.items() if distance <= moves))
    for cell in targets:
        room[cell] = "."
    for cell in boxes:
        room[cell] = "$"
    room[player] = "+" if room[player] == "." else "@"
    return "".join(room)


def _walks(room: list[str], start: int, boxes: set[int], directions: tuple[int, ...]) -> dict[int, int]:
    """Return the cells the player reaches without moving a box, with their distances."""
    distance = {start: 0}
    queue = [start]
    for cell in queue:
        for step in directions:
            neighbour = cell + step
            if neighbour not in distance and room[neighbour] == " " and neighbour not in boxes:
                distance[neighbour] = distance[cell] + 1
                queue.append(neighbour)
    return distance
