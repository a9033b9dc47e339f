"""The reference policy: plays the task's own solution, action by action, then submits."""

from __future__ import annotations

from rock_env.errors import InvalidArgument
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.swe.catalog import load_task
from sandboxes.swe.params import SweParams

__all__ = ["SweOracle", "make_oracle", "optimum"]


class SweOracle:
    """Return the next action of the solution, whatever is observed."""

    def __init__(self, actions: tuple[str, ...]) -> None:
        self._actions = iter(actions)

    def __call__(self, observation: str) -> str:
        return next(self._actions, "submit")


def make_oracle(params: EnvParams, task: TaskSpec) -> SweOracle:
    """Build the reference policy for one task. Raise `InvalidArgument` for another environment's arguments."""
    if not isinstance(params, SweParams):
        raise InvalidArgument(f"swe takes SweParams, got {type(params).__name__}")
    return SweOracle(load_task(params, task.payload).solution)


def optimum(params: EnvParams, task: TaskSpec) -> float:
    """Return 1.0: every task has a solution that passes."""
    return 1.0
