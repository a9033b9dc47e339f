"""FrozenLake's arguments, what the agent is told, and its tasks. Called through `ENV`; holds no state."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Literal

from pydantic import Field, model_validator

from rock_env.spec import EnvParams, TaskSource
from rock_env.tasks import ListedTasks, ProceduralTasks
from sandboxes.frozen_lake.generator import FIXED_MAPS, random_map
from sandboxes.frozen_lake.lake import Symbols, cell_symbols

__all__ = ["FrozenLakeParams", "narrow", "tasks"]


class FrozenLakeParams(EnvParams):
    size: int = Field(default=4, ge=2, le=32)
    """Rows and columns of the map."""
    slippery: bool = False
    """A move turns to either side with probability 1/3 each (Gymnasium's is_slippery)."""
    frozen_probability: float = Field(default=0.8, gt=0.0, le=1.0)
    """Probability that a cell of a random map is ice; boards that cannot be crossed are drawn again."""
    max_turns: int | None = Field(default=None, ge=1, le=1000)
    """Turn limit; not given: 100 on slippery ice (Gymnasium's 4x4 limit), else 5 per row of the map."""
    map_name: Literal["random", "4x4", "8x8"] = "random"
    """Random maps, or one of Gymnasium's two fixed ones (then train and held_out are that same map)."""
    symbols: Symbols = "gem"
    """How cells look: gem `_ O G`, gymnasium `S F H G`; the player is P, X in a hole and √ on the goal."""

    @model_validator(mode="after")
    def _fixed_map_fits(self) -> FrozenLakeParams:
        if self.map_name == "random":
            return self
        size = len(FIXED_MAPS[self.map_name].split("\n"))
        if self.size != size:
            raise ValueError(f"map {self.map_name!r} has size {size}: set size={size} as well")
        if self.frozen_probability != FrozenLakeParams.model_fields["frozen_probability"].default:
            raise ValueError(
                f"frozen_probability is for random maps only; remove it or map_name={self.map_name!r}"
            )
        return self

    @property
    def turn_limit(self) -> int:
        """Return max_turns, or its default."""
        return self.max_turns or (100 if self.slippery else 5 * self.size)


narrow = FrozenLakeParams.narrowed


def instruction(params: FrozenLakeParams) -> str:
    """Return the rules, the same text for every task of these arguments."""
    look = cell_symbols(params.symbols)
    start = "" if look["S"] == look["F"] else f", {look['S']} the start (ice)"
    slip = (
        "The ice is slippery: each move goes the way you chose with probability 1/3 and turns to either "
        "side, at a right angle, with probability 1/3 each.\n"
        if params.slippery
        else ""
    )
    return (
        f"You are crossing a frozen lake of {params.size} by {params.size} cells. Each turn you see it as "
        "text, one character per cell:\n"
        f"P you, {look['F']} ice{start}, {look['H']} a hole, {look['G']} the goal, "
        "X you in a hole (lost), √ you on the goal (won).\n"
        f"Reach the goal within {params.turn_limit} turns without stepping into a hole. "
        "A move over the edge leaves you where you are.\n"
        f"{slip}"
        "Answer with one move: left, down, right or up. If you write more, the last of these words counts."
    )


@lru_cache(maxsize=64)
def _tasks(params: FrozenLakeParams) -> TaskSource:
    if params.map_name != "random":
        return ListedTasks([FIXED_MAPS[params.map_name]], instruction=instruction(params))
    return ProceduralTasks(
        partial(random_map, params.size, params.frozen_probability),
        salt="frozen_lake",
        instruction=instruction(params),
    )


def tasks(params: EnvParams) -> TaskSource:
    """Return the tasks: random maps split by content, or the one fixed map."""
    return _tasks(narrow(params))
