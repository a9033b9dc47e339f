"""A chain of forks with one way home; a wrong turn shows only at the end. See README.md."""

from rock_env.spec import EnvSpec
from sandboxes.fork_chain.env import make
from sandboxes.fork_chain.oracle import make_oracle, optimum
from sandboxes.fork_chain.params import ForkChainParams, make_tasks

__all__ = ["ENV"]

ENV = EnvSpec(
    name="fork_chain",
    version="1",
    summary="Find the way through a chain of forks by their signs; a wrong turn shows only at the end.",
    params=ForkChainParams,
    factory=make,
    tasks=make_tasks,
    oracle=make_oracle,
    optimum=optimum,
    snapshots=True,
)
