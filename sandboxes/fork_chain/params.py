"""The environment's arguments, what the agent is told, and its tasks. Called through `ENV`; holds no state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pydantic import Field, model_validator

from rock_env.spec import EnvParams
from rock_env.tasks import ExtraSplit, ProceduralTasks
from sandboxes.fork_chain.chain import HELD_OUT_SYMBOLS, TRAIN_SYMBOLS, random_chain

__all__ = ["SPLITS", "ForkChainParams", "make_tasks", "narrow"]

SPLITS = ("train", "held_out", "held_out_symbols")


class ForkChainParams(EnvParams):
    """Arguments of the `fork_chain` environment."""

    length: int = Field(default=6, ge=1, le=64)
    """Forks of a chain."""
    width: int = Field(default=3, ge=2, le=8)
    """Paths of a fork, one of which leads on."""
    crucial: int = Field(default=1, ge=0, le=64)
    """Forks of a chain whose sign means the path after the one it names; all others mean the one they name."""
    clues: bool = True
    """Show the signs. Without them a map can only be learnt by heart, and chance is the best on a new one."""
    train_maps: int = Field(default=1_000_000, ge=1, le=1_000_000)
    """Maps of the split train; a few of them make the tabular case."""
    max_turns: int | None = Field(default=None, ge=1, le=1000)
    """Turn limit; not given: 2 per fork. Only an action that names no path costs a turn and leaves the agent where it is."""

    @property
    def turn_limit(self) -> int:
        """Return max_turns, or its default."""
        return self.max_turns or 2 * self.length

    @model_validator(mode="after")
    def _fits(self) -> ForkChainParams:
        if self.crucial > self.length:
            raise ValueError(
                f"crucial={self.crucial} forks do not fit into length={self.length}: lower crucial"
            )
        if self.crucial and not self.clues:
            raise ValueError("without clues no fork is more crucial than another: set crucial=0 as well")
        return self


narrow = ForkChainParams.narrowed


def instruction(params: ForkChainParams) -> str:
    """Return the rules, the same text for every task of these arguments."""
    told = (
        f"You walk home through {params.length} forks of {params.width} paths each. At every fork one path leads on; "
        "every other leads astray, which you notice only when you have passed the last fork.\n"
    )
    if params.clues:
        told += (
            "You see the number of the fork, its sign, and its paths, such as: 2/6 =ka mo ka ti\n"
            "A sign =ka means: take ka. A sign >ka means: take the path listed after ka, or the first if ka is the last.\n"
        )
    else:
        told += "You see the number of the fork and its paths, such as: 2/6 mo ka ti\n"
    told += f"You have {params.turn_limit} turns. Answer with one of the fork's paths. "
    return f"{told}If you write more, the last of them counts."


@lru_cache(maxsize=64)
def _tasks(params: ForkChainParams) -> ExtraSplit:
    """Return maps: train and held_out have the same symbols and disjoint maps, held_out_symbols has others."""
    told = instruction(params)

    def maps(symbols: Sequence[str], salt: str) -> ProceduralTasks:
        def generate(seed: int) -> str:
            return random_chain(
                symbols, length=params.length, width=params.width, crucial=params.crucial, seed=seed
            )

        return ProceduralTasks(generate, salt=salt, instruction=told, train=params.train_maps)

    new = maps(HELD_OUT_SYMBOLS, "fork_chain_symbols")
    return ExtraSplit(maps(TRAIN_SYMBOLS, "fork_chain"), SPLITS[-1], new)


def make_tasks(params: EnvParams) -> ExtraSplit:
    """Return the tasks. Raise `InvalidArgument` for another environment's arguments."""
    return _tasks(narrow(params))
