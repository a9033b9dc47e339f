"""The reference policy: plays a task's own solution, finding each element in the newest observation."""

from __future__ import annotations

from collections.abc import Sequence

from rock_env.env import Oracle
from rock_env.errors import Unimplemented
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.browser.catalog import scenario
from sandboxes.browser.miniwob import PREFIX
from sandboxes.browser.miniwob_oracles import SOLVERS
from sandboxes.browser.scenario import On, Step, say
from sandboxes.browser.view import elements
from sandboxes.browser.webshop import PREFIX as WEBSHOP
from sandboxes.browser.webshop import solution

__all__ = ["BrowserOracle", "make_oracle", "optimum", "written"]


class BrowserOracle:
    """Returns the next action of a solution; `noop()` once there is none, or where its element is not to be seen."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = iter(steps)

    def __call__(self, observation: str) -> str:
        step = next(self._steps, "noop()")
        return written(step, observation) if isinstance(step, On) else step


def written(step: On, observation: str) -> str:
    """Return a step as an action on the element that the observation shows."""
    found = elements(observation, step.role, step.name, step.after)
    if not found:
        return "noop()"
    return f'{step.op}("{found[0]}"{", " + step.rest if step.rest else ""})'


def make_oracle(params: EnvParams, task: TaskSpec) -> Oracle:
    """Build the reference policy for one task. Raise `Unimplemented` for a MiniWoB++ task that nobody solved here."""
    if task.payload.startswith(WEBSHOP):
        return BrowserOracle([*solution(task.payload), say("done")])
    if not task.payload.startswith(PREFIX):
        return BrowserOracle(scenario(task.payload).steps)
    name = task.payload.removeprefix(PREFIX).partition("/")[0]
    if name not in SOLVERS:
        raise Unimplemented(f"there is no reference policy for the MiniWoB++ task {name!r}.")
    return SOLVERS[name]()


def optimum(params: EnvParams, task: TaskSpec) -> float:
    """Return 1.0: every task of the sites has a solution that passes; of MiniWoB++ it is the upper bound."""
    return 1.0
