"""FrozenLake: cross the ice to the goal without falling into a hole. See README.md."""

from rock_env.spec import EnvSpec, Picture
from sandboxes.frozen_lake.env import make
from sandboxes.frozen_lake.lake import BOARDS
from sandboxes.frozen_lake.oracle import make_oracle, optimum
from sandboxes.frozen_lake.params import FrozenLakeParams, tasks

__all__ = ["ENV"]

ENV = EnvSpec(
    name="frozen_lake",
    version="1",
    summary="Cross a frozen lake to the goal without falling into a hole (Gymnasium's FrozenLake as text).",
    params=FrozenLakeParams,
    factory=make,
    tasks=tasks,
    oracle=make_oracle,
    optimum=optimum,
    snapshots=True,
    picture=Picture("board", BOARDS),
)
