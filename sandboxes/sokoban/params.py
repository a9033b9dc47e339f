"""Sokoban's arguments, what the agent is told, and its tasks. Called through `ENV`; holds no state."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Literal

from pydantic import Field, model_validator

from rock_env.spec import EnvParams, HostPath, TaskSource
from rock_env.tasks import ExtraSplit, ListedTasks, ProceduralTasks
from sandboxes.sokoban.generator import Shape, random_level
from sandboxes.sokoban.level import SYMBOLS, Symbols, read_boxoban

__all__ = ["NEW_SYMBOLS", "SokobanParams", "narrow", "symbols_in", "tasks"]

NEW_SYMBOLS = "held_out_symbols"
"""The split of the levels of held_out, shown in symbols that no other split has."""

BOXOBAN_TURNS = 120
"""gym-sokoban's limit for Boxoban levels."""


PRESETS = {"6x6": Shape(6, 6, 1, 30), "8x8": Shape(8, 8, 2, 60)}


class SokobanParams(EnvParams):
    level: Literal["6x6", "8x8", "custom"] = "6x6"
    """Generated levels: 6x6 with 1 box, 8x8 with 2 boxes, or custom with rows, cols and boxes."""
    rows: int | None = Field(default=None, ge=6, le=20)
    """Rows of custom levels, walls included."""
    cols: int | None = Field(default=None, ge=6, le=20)
    """Columns of custom levels, walls included."""
    boxes: int | None = Field(default=None, ge=1, le=6)
    """Boxes of custom levels."""
    boxoban_file: HostPath | None = None
    """Boxoban text file, a path or the name of a server's data; its levels are the tasks instead of generated ones."""
    max_turns: int | None = Field(default=None, ge=1, le=1000)
    """Turn limit; not given: 30 for 6x6, 60 for 8x8, rows × cols for custom, 120 for a Boxoban file."""
    symbols: Symbols = "roll"
    """How cells look: roll `# _ O √ X P S`, boxoban `#   . * $ @ +`, letters `W . G C B A @`."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> SokobanParams:
        given = [name for name in ("rows", "cols", "boxes") if getattr(self, name) is not None]
        if self.boxoban_file is not None and (given or self.level != "6x6"):
            raise ValueError("boxoban_file brings its own levels: remove level, rows, cols and boxes")
        if self.level == "custom" and len(given) < 3:
            raise ValueError(f"level='custom' needs rows, cols and boxes, got only {given}")
        if self.level != "custom" and given:
            raise ValueError(
                f"{', '.join(given)} are for custom levels only: set level='custom' or remove them"
            )
        return self

    @property
    def shape(self) -> Shape:
        """Return the size of generated levels."""
        if self.rows is None or self.cols is None or self.boxes is None:
            return PRESETS[self.level]
        return Shape(self.rows, self.cols, self.boxes, self.rows * self.cols)

    @property
    def turn_limit(self) -> int:
        """Return max_turns, or its default."""
        return self.max_turns or (self.shape.moves if self.boxoban_file is None else BOXOBAN_TURNS)


narrow = SokobanParams.narrowed


def symbols_in(params: SokobanParams, split: str) -> Symbols:
    """Return what the tasks of a split look like: as the arguments say, and of `NEW_SYMBOLS` otherwise."""
    if split != NEW_SYMBOLS:
        return params.symbols
    return "roll" if params.symbols == "letters" else "letters"


def instruction(params: SokobanParams, symbols: Symbols) -> str:
    """Return the rules, the same text for every task of these arguments and symbols."""
    look = SYMBOLS[symbols]
    floor = "a space is floor" if look.floor == " " else f"{look.floor} floor"
    return (
        "You are playing Sokoban. Each turn you see the room as text, one character per cell:\n"
        f"{look.wall} wall, {floor}, {look.target} target, {look.box} box, {look.box_on} box on a target, "
        f"{look.player} you, {look.player_on} you on a target.\n"
        f"Push every box onto a target within {params.turn_limit} turns. You push a box by walking into it, one box "
        "at a time, if the cell behind it is free; you cannot pull. Walking into a wall does nothing.\n"
        "Answer with one move: up, down, left or right. If you write more, the last of these words counts."
    )


@lru_cache(maxsize=64)
def _tasks(params: SokobanParams) -> ExtraSplit:
    """Return levels: splits are disjoint but for `NEW_SYMBOLS`, which has held_out's."""

    def levels(told: str) -> TaskSource:
        if params.boxoban_file is None:
            return ProceduralTasks(partial(random_level, params.shape), salt="sokoban", instruction=told)
        return ListedTasks(read_boxoban(params.boxoban_file), instruction=told)

    old, new = (
        levels(instruction(params, symbols)) for symbols in (params.symbols, symbols_in(params, NEW_SYMBOLS))
    )
    return ExtraSplit(old, NEW_SYMBOLS, new)


def tasks(params: EnvParams) -> ExtraSplit:
    """Return the tasks: generated levels split by content, or the levels of a file."""
    return _tasks(narrow(params))
