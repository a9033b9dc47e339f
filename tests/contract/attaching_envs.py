"""An environment that attaches what an action names to its reply, for tests: `--env attaching_envs:ATTACHING`."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rock_env.env import Attachment, Info, StepResult, Verdict
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, EnvSpec, Resources, SandboxSpec, TaskSpec
from rock_env.tasks import ListedTasks

__all__ = ["ATTACHING"]


class Params(EnvParams):
    """It has no arguments."""


class AttachingEnv:
    """An action is JSON: files to write, by path, and paths to attach."""

    def __init__(self) -> None:
        self._attached: list[str] = []

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        await sandbox.write_file("first.txt", b"first")
        self._attached = ["first.txt"]
        return "begun", {}

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        asked = json.loads(action)
        for path, content in asked.get("write", {}).items():
            await sandbox.write_file(path, content.encode() * asked.get("times", 1))
        if "run" in asked:
            await sandbox.exec(asked["run"])
        self._attached = asked.get("attach", [])
        return StepResult("done")

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        await sandbox.write_file("last.txt", b"last")
        self._attached = ["last.txt", "gone.txt"]
        return Verdict(1.0, passed=True)

    def attachments(self) -> Sequence[Attachment]:
        return [Attachment(path.rpartition("/")[2], "text/plain", path) for path in self._attached]


ATTACHING = EnvSpec(
    name="attaching",
    version="1",
    summary="Attaches what it is told to.",
    params=Params,
    factory=lambda _: AttachingEnv(),
    tasks=lambda _: ListedTasks(["one"], instruction="Attach."),
    oracle=lambda params, task: lambda observation: "{}",
    optimum=lambda params, task: 1.0,
    sandbox=SandboxSpec(resources=Resources(memory_bytes=256 << 20, disk_bytes=256 << 20, pids=64)),
)
