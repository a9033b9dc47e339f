"""Environments for the service's own tests: one that misbehaves on request, one without snapshots, one in a box.

Offered to a test server with `--env path/to/toy_envs.py:OBJECT`, as any unpackaged environment would be.
"""

from __future__ import annotations

import json
import os
import signal
import time
from random import Random
from typing import cast

from rock_env.env import Env, Info, StepResult, Verdict
from rock_env.errors import UnknownName
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, EnvSpec, SandboxSpec, TaskSource, TaskSpec


class ToyParams(EnvParams):
    prefix: str = ""
    """Opens every observation."""


class ToyTasks:
    splits = ("train", "test")

    def count(self, split: str) -> int:
        if split not in self.splits:
            raise UnknownName(f"unknown split {split!r}. Known: test, train")
        return 100

    def get(self, split: str, index: int) -> TaskSpec:
        self.count(split)
        told: dict[str, str] = {}
        if split == "test":
            told = {"brief": f"Write {index} lines into log.", "workdir": f"{SandboxSpec().workdir}/work"}
        return TaskSpec(f"{split}/{index}", split, index, f"Count to {index}.", **told)


class Toy:
    """Counts its steps and draws a number each turn; some actions misbehave."""

    def __init__(self, params: ToyParams) -> None:
        self._params = params
        self._random = Random(0)
        self._steps = 0

    def _observation(self) -> str:
        return f"{self._params.prefix}{self._steps}:{self._random.randrange(1_000_000)}"

    def reset(self, task: TaskSpec, seed: int) -> tuple[str, Info]:
        self._random = Random(seed)
        self._steps = 0
        return self._observation(), {"index": task.index}

    def step(self, action: str) -> StepResult:
        self._steps += 1
        if action == "pid":
            return StepResult(str(os.getpid()))
        if action.startswith("again "):
            return StepResult(action.removeprefix("again ") * 10)
        if action == "raise":
            raise ValueError("as asked")
        if action == "exit":
            os._exit(3)
        if action == "hang":
            while True:
                time.sleep(3600)
        if action == "hang natively":  # the timer's signal cannot get through, as in a blocked C call
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            while True:
                time.sleep(3600)
        return StepResult(self._observation(), 0.5, terminated=action == "end", info={"steps": self._steps})

    def evaluate(self) -> Verdict:
        return Verdict(reward=float(self._steps), passed=self._steps > 0, details="steps")

    def snapshot(self) -> bytes:
        return json.dumps([self._steps, self._random.getstate()]).encode()

    def restore(self, state: bytes) -> str:
        self._steps, (version, internal, gauss) = json.loads(state)
        self._random.setstate((version, tuple(internal), gauss))
        return f"{self._params.prefix}{self._steps}"

    def reseed(self, seed: int) -> None:
        self._random = Random(seed)

    def close(self) -> None:
        return


class ToyBox:
    """Runs each action as a shell command in its sandbox."""

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        await sandbox.write_file("seed", str(seed).encode())
        return f"seed {seed}", {}

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        if action == "raise":
            raise ValueError("as asked")
        done = await sandbox.exec(["sh", "-c", action], timeout_s=30.0)
        return StepResult(done.stdout.decode(), terminated=action == "exit")

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        lines = (await sandbox.read_file("log")).count(b"\n")
        return Verdict(reward=float(lines), passed=lines > 0)


class ToyLog(ToyBox):
    """One with a line in its log from the beginning, and a folder to work in."""

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        await sandbox.write_file("log", b"begun\n")
        await sandbox.write_file("work/here", b"found")
        return await super().reset(sandbox, task, seed)


def _tasks(params: EnvParams) -> TaskSource:
    return ToyTasks()


def _oracle(params: EnvParams, task: TaskSpec) -> object:
    return lambda observation: "end"


def _spec(
    name: str, *, snapshots: bool, replayable: bool, boxed: type[ToyBox] | None = None, image: str = ""
) -> EnvSpec:
    return EnvSpec(
        name=name,
        version="1",
        summary="A test environment.",
        params=ToyParams,
        factory=lambda params: boxed() if boxed else cast("Env", Toy(cast("ToyParams", params))),
        tasks=_tasks,
        oracle=_oracle,
        optimum=lambda params, task: 1.0,
        sandbox=SandboxSpec(image=image) if boxed else None,
        replayable=replayable,
        snapshots=snapshots,
    )


TOY = _spec("toy", snapshots=True, replayable=True)
PLAIN = _spec("toy_plain", snapshots=False, replayable=False)
BOX = _spec("toy_box", snapshots=False, replayable=True, boxed=ToyBox)
LOG = _spec("toy_log", snapshots=False, replayable=True, boxed=ToyLog)
IMAGE = _spec("toy_image", snapshots=False, replayable=True, boxed=ToyLog, image="rock-test:busybox")
