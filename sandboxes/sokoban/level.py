"""What a Sokoban level is: one text form, its symbol sets, and the reader of Boxoban level files.

The canonical text uses Boxoban's characters: `#` wall, space floor, `.` target, `$` box, `*` box on target, `@` player,
`+` player on target; rows are joined by newlines, all of equal width, with a closed wall around. Every other module may
therefore index neighbours without looking at edges.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from rock_env.errors import InvalidArgument, NotFound
from rock_env.spec import Board, Look

__all__ = [
    "BOARDS",
    "CANONICAL",
    "DIRECTIONS",
    "SYMBOLS",
    "SymbolSet",
    "Symbols",
    "check_level",
    "read_boxoban",
    "render",
    "steps",
    "unrender",
]

DIRECTIONS = ("up", "down", "left", "right")
Symbols = Literal["roll", "boxoban", "letters"]


class SymbolSet(NamedTuple):
    """The character of each kind of cell."""

    wall: str
    floor: str
    target: str
    box: str
    box_on: str
    player: str
    player_on: str


SYMBOLS: dict[Symbols, SymbolSet] = {
    "roll": SymbolSet(wall="#", floor="_", target="O", box="X", box_on="√", player="P", player_on="S"),
    "boxoban": SymbolSet(wall="#", floor=" ", target=".", box="$", box_on="*", player="@", player_on="+"),
    # RAGEN's SokobanDifferentGridVocab.
    "letters": SymbolSet(wall="W", floor=".", target="G", box="B", box_on="C", player="A", player_on="@"),
}
CANONICAL = SYMBOLS["boxoban"]
_LOOKS: tuple[Look, ...] = ("wall", "floor", "target", "box", "box_on", "player", "player_on")
BOARDS: dict[str, Board] = {name: dict(zip(signs, _LOOKS, strict=True)) for name, signs in SYMBOLS.items()}


def steps(text: str) -> tuple[int, int, int, int]:
    """Return what moving up, down, left, right adds to an index into the text of a level."""
    stride = text.index("\n") + 1
    return (-stride, stride, -1, 1)


def render(level: str, symbols: Symbols) -> str:
    """Return a canonical level in another symbol set."""
    return level.translate({ord(a): b for a, b in zip(CANONICAL, SYMBOLS[symbols], strict=True)})


def unrender(grid: str, symbols: Symbols) -> str:
    """Return a rendered level in canonical form."""
    return grid.translate({ord(a): b for a, b in zip(SYMBOLS[symbols], CANONICAL, strict=True)})


@lru_cache(maxsize=4096)
def check_level(level: str, where: str) -> None:
    """Raise `InvalidArgument`, naming `where`, unless `level` is a canonical level; it may be solved."""
    problem = _shape_problem(level.split("\n")) or _content_problem(level)
    if problem:
        raise InvalidArgument(f"{where} is not a Sokoban level: {problem}")


def _shape_problem(rows: list[str]) -> str:
    width = len(rows[0])
    if len(rows) < 3 or width < 3:
        return f"got {len(rows)} rows of {width}, expected at least 3 by 3. Add the walls around it."
    for number, row in enumerate(rows, start=1):
        if len(row) != width:
            return f"row {number} has {len(row)} characters, row 1 has {width}. Pad with '#'."
        unknown = set(row) - set(CANONICAL)
        if unknown:
            return f"row {number} has {sorted(unknown)}, expected only {' '.join(map(repr, CANONICAL))}."
        if row[0] != "#" or row[-1] != "#":
            return f"row {number} is {row!r}, expected a wall '#' at both ends."
    if set(rows[0]) | set(rows[-1]) != {"#"}:
        return f"first and last row are {rows[0]!r} and {rows[-1]!r}, expected walls '#' only."
    return ""


def _content_problem(level: str) -> str:
    players = level.count("@") + level.count("+")
    boxes = level.count("$") + level.count("*")
    targets = level.count(".") + level.count("*") + level.count("+")
    if players != 1:
        return f"got {players} players ('@' or '+'), expected 1."
    if boxes != targets:
        return f"got {boxes} boxes and {targets} targets, expected as many of each."
    return "" if boxes else "there is no box ('$' or '*')."


def read_boxoban(path: str) -> tuple[str, ...]:
    """Read the levels of a Boxoban text file: `; N` opens a level, its rows follow, empty lines separate.

    Raise `NotFound` for a file that cannot be read and `InvalidArgument`, naming level and line, for one that
    is malformed.
    """
    try:
        content = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise NotFound(f"cannot read Boxoban file {path!r}: {error.strerror}. Check boxoban_file.") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"Boxoban file {path!r} is not text: {error.reason} at byte {error.start}."
        ) from error
    levels: list[str] = []
    name, opened_at, rows = "", 0, list[str]()
    for number, raw in enumerate([*content.splitlines(), ";"], start=1):
        line = raw.rstrip("\r")
        if line.startswith(";"):
            if opened_at:
                levels.append(_level_of_file(rows, f"{path}: level {name!r} (line {opened_at})"))
            name, opened_at, rows = line[1:].strip(), number, []
        elif line.strip():
            if not opened_at:
                raise InvalidArgument(
                    f"{path}: line {number} is {line!r}, expected '; N' to open the first level."
                )
            rows.append(line)
    if not levels:
        raise InvalidArgument(
            f"{path}: no levels. Expected Boxoban text: a line '; 0', then the rows of level 0."
        )
    return tuple(levels)


def _level_of_file(rows: list[str], where: str) -> str:
    if not rows:
        raise InvalidArgument(f"{where} has no rows.")
    level = "\n".join(rows)
    check_level(level, where)
    if "$" not in level:
        raise InvalidArgument(f"{where} is solved already: every box is on a target. Remove the level.")
    return level
