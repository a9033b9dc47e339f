"""An environment that is graded in fresh boxes, whose tasks have sandboxes of their own, for the service's tests."""

from __future__ import annotations

from dataclasses import replace

from rock_env.env import FreshBoxes, Info, StepResult, Verdict
from rock_env.errors import InfraError
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, EnvSpec, SandboxSpec, TaskSource, TaskSpec

__all__ = ["GRADED"]

PLAIN = SandboxSpec(env=(("WHOSE", "the environment's"),))
OWN = replace(PLAIN, env=(("WHOSE", "the task's"),))
LOOK = 'echo "$WHOSE: $(ls | tr "\\n" " ")"'


class GradedTasks:
    """`train/0` has a sandbox of its own; `train/2` is graded with what runs."""

    splits = ("train",)

    def count(self, split: str) -> int:
        return 3

    def get(self, split: str, index: int) -> TaskSpec:
        return TaskSpec(f"{split}/{index}", split, index, "", sandbox=OWN if index == 0 else None)


class GradedBox:
    """Runs actions as shell commands; the grade tells in its details what it sees, in the box that `how` names."""

    def __init__(self) -> None:
        self._turns = 0
        self._keep = False

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        self._keep = task.index == 2
        return (await sandbox.exec(["sh", "-c", "echo $WHOSE"])).stdout.decode(), {}

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        self._turns += 1
        return StepResult((await sandbox.exec(["sh", "-c", action])).stdout.decode())

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        raise InfraError("graded in the agent's box")

    async def grade(self, box: Sandbox, fresh: FreshBoxes) -> Verdict:
        how = (await box.read_file("how")).decode().split()
        seen = []
        for kind in how:
            async with fresh.fork() if kind == "fork" else fresh.pristine() as other:
                assert other.id != box.id
                seen.append((await other.exec(["sh", "-c", LOOK])).stdout.decode().strip())
                await other.write_file("traces", b"of the grade")
                if kind == "hang":
                    await other.exec(["sleep", "600"], timeout_s=600.0)
                if kind == "two":
                    async with fresh.pristine():
                        pass
                if kind == "raise":
                    raise ValueError("as asked")
        return Verdict(1.0, passed=True, details="; ".join(seen))

    def keeps_running(self) -> bool:
        return self._keep

    def snapshot(self) -> bytes:
        return str(self._turns).encode()

    def restore(self, state: bytes) -> None:
        self._turns = int(state)


def _tasks(params: EnvParams) -> TaskSource:
    return GradedTasks()


GRADED = EnvSpec(
    name="graded",
    version="1",
    summary="A test environment.",
    params=EnvParams,
    factory=lambda params: GradedBox(),
    tasks=_tasks,
    oracle=lambda params, task: lambda observation: "true",
    optimum=lambda params, task: 1.0,
    sandbox=PLAIN,
    snapshots=True,
)
