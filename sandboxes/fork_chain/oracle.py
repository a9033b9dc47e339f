"""The one way home, and where it is easily missed. Called through `ENV.oracle` and `ENV.optimum`."""

from __future__ import annotations

from rock_env.spec import EnvParams, TaskSpec
from sandboxes.fork_chain.chain import Chain, chain
from sandboxes.fork_chain.params import narrow

__all__ = ["ForkChainOracle", "make_oracle", "optimum"]


class ForkChainOracle:
    """Take the right path of whatever fork is shown."""

    def __init__(self, known: Chain) -> None:
        self._forks = known.forks
        self.crucial = known.crucial
        """Numbers, from 0, of the turns after which success jumps for a policy that obeys plain signs only."""

    def __call__(self, observation: str) -> str:
        """Return the right path; after the end, the first fork's."""
        number, _, rest = observation.partition("/")
        place = int(number) - 1 if rest and number.isdecimal() else 0
        return self._forks[place].right


def make_oracle(params: EnvParams, task: TaskSpec) -> ForkChainOracle:
    """Return the guide of one task. Raise `InvalidArgument` for another environment's arguments."""
    narrow(params)
    return ForkChainOracle(chain(task.payload))


def optimum(params: EnvParams, task: TaskSpec) -> float:
    """Return 1.0 if the turns suffice for all forks, else 0.0.

    Who knows the map, or reads the signs, never errs. Without signs this is the optimum on a map known by heart.
    """
    return 1.0 if narrow(params).turn_limit >= len(chain(task.payload).forks) else 0.0
