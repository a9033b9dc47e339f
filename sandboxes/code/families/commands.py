"""Functions that carry out a list of commands: a family no agent is trained on."""

from __future__ import annotations

from random import Random

from sandboxes.code.problem import Arguments, Draw, Row, family

__all__ = ["FAMILIES"]


def _of(*words: str, least: int = 1, most: int = 8) -> Draw:
    """Draw commands; N in one is a number from 1 to 9."""

    def draw(rng: Random) -> Arguments:
        chosen = rng.choices(words, k=rng.randint(least, most))
        return ([word.replace("N", str(rng.randint(1, 9))) for word in chosen],)

    return draw


_WALK = """
x = y = 0
for command in commands:
    x += (command == "east") - (command == "west")
    y += (command == "north") - (command == "south")
return [x, y]
"""
_TURTLE = """
x, y, dx, dy = 0, 0, 0, 1
for command in commands:
    if command == "go":
        x, y = x + dx, y + dy
    elif command == "left":
        dx, dy = -dy, dx
    else:
        dx, dy = dy, -dx
return [x, y]
"""
_STACK = """
stack = []
for command in commands:
    if command.startswith("push "):
        stack.append(int(command[5:]))
    elif command == "pop":
        del stack[-1:]
    elif len(stack) > 1:
        stack.append(stack.pop() + stack.pop())
return stack
"""
_QUEUE = """
queue = []
for command in commands:
    if command == "out":
        del queue[:1]
    else:
        queue.append(int(command[3:]))
return queue
"""
_COUNTER = """
seen, value = [], 0
for command in commands:
    value = {"up": value + 1, "down": value - 1, "zero": 0}[command]
    seen.append(value)
return seen
"""
_LIFT = """
floors, floor = [], 0
for command in commands:
    floor = min(9, max(0, floor + int(command)))
    floors.append(floor)
return floors
"""
_LIGHTS = """
on = set()
for command in commands:
    on ^= {int(command)}
return sorted(on)
"""
_GAMES = """
points = streak = best = 0
for command in commands:
    points += {"win": 3, "draw": 1, "loss": 0}[command]
    streak = streak + 1 if command == "win" else 0
    best = max(best, streak)
return [points, best]
"""
_UNDO = """
kept = []
for command in commands:
    if command == "undo":
        del kept[-1:]
    else:
        kept.append(int(command[4:]))
return kept
"""
_SWAPS = """
order = [1, 2, 3, 4]
for command in commands:
    if command == "swap":
        order[0], order[1] = order[1], order[0]
    elif command == "turn":
        order = order[1:] + order[:1]
    else:
        order.reverse()
return order
"""

_ROWS = (
    Row(
        "walk",
        "the place [x, y] reached from [0, 0] by steps north (y + 1), south, east (x + 1) and west",
        _WALK,
        _of("north", "south", "east", "west"),
    ),
    Row(
        "turtle",
        "the place [x, y] reached from [0, 0], facing the way in which y grows, go is one step, left and right turn",
        _TURTLE,
        _of("go", "go", "left", "right"),
    ),
    Row(
        "stack",
        "the stack, bottom first, after commands such as push 3, pop, and add (the two topmost become their sum); what "
        "cannot be done is left out",
        _STACK,
        _of("push N", "push N", "pop", "add"),
    ),
    Row(
        "queue",
        "the queue, oldest first, after commands such as in 3 and out (takes the oldest away, if there is one)",
        _QUEUE,
        _of("in N", "in N", "out"),
    ),
    Row(
        "counter",
        "the values of a counter after each command, from 0, where up adds 1, down takes 1 away and zero sets it to 0",
        _COUNTER,
        _of("up", "up", "down", "zero"),
    ),
    Row(
        "lift",
        "the floors of a lift after each command such as +3 or -2, from floor 0; it stops at 0 and at 9",
        _LIFT,
        _of("+N", "-N"),
    ),
    Row(
        "lights",
        "the numbers, ascending, of the lights that are on in the end; each command names a light that is switched, on or "
        "off, and all are off at first",
        _LIGHTS,
        _of("1", "2", "3", "4", "5"),
    ),
    Row(
        "games",
        "[points, longest series of wins], where a win is 3 points, a draw 1 and a loss 0",
        _GAMES,
        _of("win", "win", "draw", "loss"),
    ),
    Row(
        "undo",
        "the numbers that are left in their order after commands such as add 3 and undo (takes the newest away, if any)",
        _UNDO,
        _of("add N", "add N", "undo"),
    ),
    Row(
        "rearrange",
        "the list [1, 2, 3, 4] after the commands swap (of the first two), turn (the first moves to the end) and reverse",
        _SWAPS,
        _of("swap", "turn", "reverse", most=5),
    ),
)

FAMILIES = (family("commands", "(commands: list[str]) -> list[int]", _of("up"), (([],),), _ROWS),)
