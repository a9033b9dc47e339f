"""An environment that runs each action as Python, as libraries do that hand an action to `eval`. Offered with `--env`."""

from __future__ import annotations

from typing import Any, cast

from rock_env.env import Env, StepResult, Verdict
from rock_env.spec import EnvParams, EnvSpec, TaskSpec
from rock_env.tasks import ProceduralTasks


class Attacking:
    """The environment: what an action leaves in `said` is observed."""

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, dict[str, Any]]:
        return "", {}

    def step(self, action: str) -> StepResult:
        found: dict[str, Any] = {"said": "nothing"}
        exec(action, found)
        return StepResult(str(found["said"]))

    def evaluate(self) -> Verdict:
        return Verdict(0.0, False)

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> str:
        return ""

    def reseed(self, seed: int) -> None:
        return

    def close(self) -> None:
        return


def _never(*_: Any) -> Any:
    raise NotImplementedError("nobody asks")


ATTACKING = EnvSpec(
    name="attacking",
    version="1",
    summary="Runs what it is told.",
    params=EnvParams,
    factory=lambda _: cast("Env", Attacking()),
    tasks=lambda _: ProceduralTasks(str, salt="attacking", instruction="Attack."),
    oracle=_never,
    optimum=_never,
)
