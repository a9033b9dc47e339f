"""An environment that nobody installed: say the letter that stands there."""

from __future__ import annotations

from rock_env.env import Info, StepResult, Verdict
from rock_env.spec import EnvParams, EnvSpec, TaskSpec
from rock_env.tasks import ProceduralTasks


class Echo:
    """One turn: the observation is a letter, and so should the action be."""

    def __init__(self, params: EnvParams) -> None:
        self._wanted, self._passed = "", False

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, Info]:
        self._wanted, self._passed = task.payload[0], False
        return self._wanted, {}

    def step(self, action: str) -> StepResult:
        self._passed = action.strip() == self._wanted
        return StepResult("", float(self._passed), terminated=True)

    def evaluate(self) -> Verdict:
        return Verdict(reward=float(self._passed), passed=self._passed)

    def close(self) -> None:
        pass


def tasks(params: EnvParams) -> ProceduralTasks:
    return ProceduralTasks(
        lambda seed: "abcd"[seed % 4] + str(seed), salt="echo", instruction="Say the letter."
    )


ENV = EnvSpec(
    name="echo",
    version="1",
    summary="Say the letter that stands there.",
    params=EnvParams,
    factory=Echo,
    tasks=tasks,
    oracle=lambda params, task: lambda observation: task.payload[0],
    optimum=lambda params, task: 1.0,
)
