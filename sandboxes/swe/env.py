"""The rules: shell commands in, exit code and output out, `submit` ends the task.

Acts only through the sandbox it is handed. It keeps the task and the number of turns, both of which a replay of the
actions restores.
"""

from __future__ import annotations

import re

from rock_env.env import Info, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InfraError, InvalidArgument
from rock_env.sandbox import ExecResult, Sandbox
from rock_env.shell import run_in_shell
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.swe.catalog import load_task
from sandboxes.swe.grade import grade
from sandboxes.swe.params import SweParams

__all__ = ["SweEnv", "make", "parse_action", "render"]

_BLOCK = re.compile(r"```(?:bash|sh|shell)?[ \t]*\n(.*?)```", re.DOTALL)
_MAX_CAPTURED_BYTES = 1 << 18
_PYTEST_TIME = re.compile(r" in \d+\.\d\ds(?: \(\d+:\d\d:\d\d\))?")


def parse_action(text: str) -> tuple[str, str]:
    """Return (command, "") or ("", what is wrong with the action)."""
    blocks = _BLOCK.findall(text)
    if len(blocks) > 1:
        return "", f"one action is one command, but the message has {len(blocks)} code blocks"
    if not blocks and "```" in text:
        return "", "the code block is not closed"
    command = str(blocks[0] if blocks else text).strip()
    if not command:
        return "", "the message has no command"
    if "\0" in command:
        return "", "a command cannot contain the NUL character"
    return command, ""


def render(result: ExecResult, *, timeout_s: float, max_chars: int) -> str:
    """Tell what a command did. Timings of pytest are left out, so that equal actions look equal."""
    if result.timed_out:
        head = f"timed out after {timeout_s:g} s and was killed"
    elif result.signal is not None:
        head = f"killed by signal {result.signal}"
    else:
        head = f"exit code {result.exit_code}"
    if result.truncated:
        head += f"; output cut after {_MAX_CAPTURED_BYTES} bytes"
    output = _PYTEST_TIME.sub("", result.stdout.decode(errors="replace")).rstrip("\n")
    if len(output) > max_chars:
        half = max_chars // 2
        left_out = len(output) - 2 * half
        output = f"{output[:half]}\n[... truncated: {left_out} characters left out ...]\n{output[-half:]}"
    return f"[{head}]\n{output}" if output else f"[{head}]"


class SweEnv:
    """One episode at a time over the sandbox it is handed; satisfies `SandboxEnv`."""

    def __init__(self, params: SweParams) -> None:
        self._params = params
        self._task = ""
        self._turns = 0

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Put the project into the fresh sandbox; `seed` changes nothing."""
        for path, content in task.files:
            await sandbox.write_file(path, content)
        entered = await self._run(sandbox, f"cd {task.payload}")
        if not entered.ok:
            raise InfraError(f"cannot enter the project in the sandbox: {entered}")
        self._task, self._turns = task.payload, 0
        listing = "\n".join(path for path, _ in load_task(task.payload).repo)
        return f"You are in the project folder {task.payload}. Its files:\n{listing}", {"task": task.payload}

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        """Run one command, or end the task."""
        if not self._task:
            raise FailedPrecondition("step before reset: reset the environment first")
        self._turns += 1
        command, problem = parse_action(action)
        if command == "submit":
            return StepResult("Submitted.", terminated=True)
        truncated = self._turns >= self._params.max_turns
        if problem:
            return StepResult(f"[not run] {problem}.", truncated=truncated, info={"illegal": True})
        result = await self._run(sandbox, command)
        text = render(
            result, timeout_s=self._params.command_timeout_s, max_chars=self._params.max_output_chars
        )
        return StepResult(text, truncated=truncated)

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        """Run the hidden tests on the project as it is now. Ends what the agent left running."""
        if not self._task:
            raise FailedPrecondition("evaluate before reset: reset the environment first")
        return await grade(sandbox, load_task(self._task))

    async def _run(self, sandbox: Sandbox, command: str) -> ExecResult:
        result = await run_in_shell(
            sandbox,
            command,
            timeout_s=self._params.command_timeout_s,
            max_output_bytes=_MAX_CAPTURED_BYTES,
        )
        if result.infra_error:
            raise InfraError(f"the sandbox failed while running a command: {result.infra_error}")
        return result


def make(params: EnvParams) -> SweEnv:
    """Build one environment. Raise `InvalidArgument` for another environment's arguments."""
    if not isinstance(params, SweParams):
        raise InvalidArgument(f"swe takes SweParams, got {type(params).__name__}")
    return SweEnv(params)
