"""An environment with a sandbox whose rules open every text they are given, or take time or memory. Offered with `--env`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, cast

from rock_env.env import Info, StepResult, Verdict
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, EnvSpec, SandboxSpec, TaskSpec
from rock_env.tasks import ProceduralTasks

NOTHING = "nothing"


class BoxedParams(EnvParams):
    eats: int = 0
    """Bytes to allocate when it is made."""


class Boxed:
    """Each action is an order to the rules; what does not begin with a known word is a text to look behind."""

    def __init__(self, params: BoxedParams) -> None:
        self._eaten = bytearray(params.eats)

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        return str(os.getpid()), {}

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        word, _, rest = action.partition(" ")
        if word == "hold":
            time.sleep(float(rest))  # noqa: ASYNC251  the event loop of the rules stands still
            return StepResult("held")
        if word == "run":
            return StepResult((await sandbox.exec(["sh", "-c", rest])).stdout.decode())
        if word == "close":
            await sandbox.close()
        if word == "big":
            return StepResult(
                str(len((await sandbox.exec(["sh", "-c", rest], max_output_bytes=1 << 40)).stdout))
            )
        if word == "twice":
            await sandbox.exec(["sh", "-c", rest], max_output_bytes=50_000_000)
        if word == "file":
            return StepResult(str(len(await sandbox.read_file(rest))))
        try:
            text = Path(action).read_text(errors="replace")  # noqa: ASYNC240  it does what it should not
            return StepResult(text[:100] or "an empty file")
        except (OSError, ValueError):
            return StepResult(NOTHING)

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        return Verdict(1.0, passed=True)


def _never(*_: Any) -> Any:
    raise NotImplementedError("nobody asks")


BOXED = EnvSpec(
    name="boxed",
    version="1",
    summary="Opens what it is given, beside a sandbox.",
    params=BoxedParams,
    factory=lambda params: Boxed(cast("BoxedParams", params)),
    tasks=lambda _: ProceduralTasks(str, salt="boxed", instruction="Look."),
    oracle=_never,
    optimum=_never,
    sandbox=SandboxSpec(),
)
