"""A frozen lake that breaks on purpose: in a quarter of its training episodes, chosen by seed, the second step raises."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from rock_env.env import Env, Info, StepResult, Verdict
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.frozen_lake import ENV as LAKE


class FlakyLake:
    def __init__(self, params: EnvParams) -> None:
        self._lake: Any = LAKE.factory(params)
        self._left = 0

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, Info]:
        self._left = 2 if seed % 4 == 0 and task.split == "train" else 0
        observation: tuple[str, Info] = self._lake.reset(task, seed)
        return observation

    def step(self, action: str) -> StepResult:
        self._left -= 1
        if self._left == 0:
            raise OSError("the ice broke, as asked")
        result: StepResult = self._lake.step(action)
        return result

    def evaluate(self) -> Verdict:
        verdict: Verdict = self._lake.evaluate()
        return verdict

    def close(self) -> None:
        self._lake.close()


ENV = replace(
    LAKE,
    name="flaky_lake",
    factory=lambda params: cast("Env", FlakyLake(params)),
    snapshots=False,
    replayable=False,
)
