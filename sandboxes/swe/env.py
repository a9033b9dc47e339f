"""The rules: one tool call per message, its reply as the observation, `submit` ends the task.

Acts only through the sandbox it is handed. It keeps the task, the number of turns and the edits that can be taken back;
a replay of the actions restores them, and so does `restore`.
"""

from __future__ import annotations

from rock_env.env import FreshBoxes, Info, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InvalidArgument, Unimplemented
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, TaskSpec
from rock_env.tools import Toolbox
from sandboxes.swe.catalog import load_task, toolbox
from sandboxes.swe.data import SweTask
from sandboxes.swe.grade import grade
from sandboxes.swe.params import SweParams

__all__ = ["SweEnv", "make"]


class SweEnv:
    """One episode at a time over the sandbox it is handed; satisfies `RestorableSandboxEnv` and `FreshGraded`."""

    def __init__(self, params: SweParams) -> None:
        self._params = params
        self._task: SweTask | None = None
        self._tools: Toolbox | None = None
        self._turns = 0

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Put the project into the fresh sandbox; `seed` changes nothing."""
        self._begin(task.payload)
        for path, content in task.files:
            await sandbox.write_file(path, content)
        chosen = load_task(self._params, task.payload)
        listing = "\n".join(path for path, _ in chosen.repo)
        info: dict[str, str | float] = {"task": chosen.key, "project": chosen.name}
        if chosen.family:
            info |= {"family": chosen.family, "difficulty": chosen.difficulty}
        return (
            f"You are in the project folder /workspace/{chosen.name}. Its files:\n{listing}\n\n"
            f"The bug report:\n{chosen.report}"
        ), info

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        """Carry out one tool call, or end the task."""
        if self._tools is None:
            raise FailedPrecondition("step before reset: reset the environment first")
        self._turns += 1
        reply = await self._tools.act(sandbox, action)
        truncated = not reply.submitted and self._turns >= self._params.max_turns
        return StepResult(reply.text, terminated=reply.submitted, truncated=truncated, info=dict(reply.info))

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        """Raise `Unimplemented`: this needs a second sandbox."""
        raise Unimplemented("swe is graded in a sandbox the agent never touched: call `grade`")

    async def grade(self, box: Sandbox, fresh: FreshBoxes) -> Verdict:
        """Run the hidden tests in a new sandbox, on the project with the agent's changes."""
        if self._task is None:
            raise FailedPrecondition("grade before reset: reset the environment first")
        return await grade(box, fresh, self._task)

    def snapshot(self) -> bytes:
        """Return the task, the number of turns and the edits; the rest is in the sandbox."""
        if self._task is None or self._tools is None:
            raise FailedPrecondition("snapshot before reset: reset the environment first")
        return f"{self._turns} {self._task.key}\n".encode() + self._tools.snapshot()

    def restore(self, state: bytes) -> None:
        """Go on from `snapshot()`'s bytes."""
        head, _, tools = state.partition(b"\n")
        turns, _, key = head.decode().partition(" ")
        self._begin(key).restore(tools)
        self._turns = int(turns)

    def _begin(self, key: str) -> Toolbox:
        self._task = load_task(self._params, key)
        self._tools = toolbox(self._params, self._task.name)
        self._turns = 0
        return self._tools


def make(params: EnvParams) -> SweEnv:
    """Build one environment. Raise `InvalidArgument` for another environment's arguments."""
    if not isinstance(params, SweParams):
        raise InvalidArgument(f"swe takes SweParams, got {type(params).__name__}")
    return SweEnv(params)
