"""The environment's arguments, what the agent is told, and its tasks. Called through `ENV`; holds no state."""

from __future__ import annotations

from functools import lru_cache
from random import Random

from pydantic import Field, model_validator

from rock_env.arguments import items
from rock_env.spec import EnvParams
from rock_env.tasks import ExtraSplit, ProceduralTasks
from sandboxes.math.families import LEVELS, TRAINED, UNSEEN, draw
from sandboxes.math.problem import Style

__all__ = ["SPLITS", "MathParams", "make_tasks", "narrow"]

SPLITS = ("train", "held_out", "held_out_family")
_FORMS = "An answer is exact: an integer (42), a fraction (3/4) or a decimal (0.75). "


class MathParams(EnvParams):
    """Arguments of the `math` environment."""

    families: str = ""
    """Families of train and held_out, as `arithmetic,linear`; empty: all of these splits."""
    min_level: int = Field(default=LEVELS[0], ge=LEVELS[0], le=LEVELS[1])
    """Easiest level drawn."""
    max_level: int = Field(default=3, ge=LEVELS[0], le=LEVELS[1])
    """Hardest level drawn."""
    style: Style = "words"
    """Questions in words, or in symbols as short as possible."""

    @property
    def chosen_families(self) -> tuple[str, ...]:
        """Return the families of train and held_out."""
        named = tuple(dict.fromkeys(items(self.families)))
        return named or tuple(TRAINED)

    @model_validator(mode="after")
    def _fits(self) -> MathParams:
        for name in self.chosen_families:
            if name in UNSEEN:
                raise ValueError(
                    f"family {name!r} is only in the split held_out_family; choose of {', '.join(TRAINED)}"
                )
            if name not in TRAINED:
                raise ValueError(f"no family {name!r}; the families are {', '.join(TRAINED)}")
        if self.min_level > self.max_level:
            raise ValueError(f"min_level is {self.min_level}, above max_level {self.max_level}: swap them")
        return self


narrow = MathParams.narrowed


def instruction(params: MathParams) -> str:
    """Return what the agent is told, the same text for every task of these arguments."""
    told = (
        "You are asked one math question and have one answer. "
        f"{_FORMS}Two unknowns are answered together: x = 2, y = -3.\n"
        "Think first if you like, and end with the answer in \\boxed{}. Without a box the last line counts, which must then "
        "hold nothing but the answer. Units are left out."
    )
    if params.style == "symbols":
        told += " a%b is the remainder of a divided by b, ^ a power, ? the number asked for."
    return told


@lru_cache(maxsize=64)
def _tasks(params: MathParams) -> ExtraSplit:
    """Return questions: train and held_out share their families and are disjoint, held_out_family has the others."""
    told = instruction(params)

    def questions(families: tuple[str, ...], salt: str) -> ProceduralTasks:
        def generate(seed: int) -> str:
            rng = Random(seed)
            return draw(rng.choice(families), rng, rng.randint(params.min_level, params.max_level)).payload()

        return ProceduralTasks(generate, salt=salt, instruction=told)

    unseen = questions(tuple(UNSEEN), "math_unseen")
    return ExtraSplit(questions(params.chosen_families, "math"), SPLITS[-1], unseen)


def make_tasks(params: EnvParams) -> ExtraSplit:
    """Return the tasks. Raise `InvalidArgument` for another environment's arguments."""
    return _tasks(narrow(params))
