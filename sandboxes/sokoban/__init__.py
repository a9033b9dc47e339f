"""Sokoban: push every box onto a target. See README.md."""

from rock_env.spec import EnvSpec, Picture
from sandboxes.sokoban.env import make
from sandboxes.sokoban.level import BOARDS
from sandboxes.sokoban.oracle import make_oracle, optimum
from sandboxes.sokoban.params import SokobanParams, tasks

__all__ = ["ENV"]

ENV = EnvSpec(
    name="sokoban",
    version="1",
    summary="Push every box onto a target (generated rooms or Boxoban levels, as text).",
    params=SokobanParams,
    factory=make,
    tasks=tasks,
    oracle=make_oracle,
    optimum=optimum,
    snapshots=True,
    picture=Picture("board", BOARDS),
)
