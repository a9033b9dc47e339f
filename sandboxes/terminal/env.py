"""The rules: tool calls in, what they led to out, `submit` ends the task.

Acts only through the sandbox it is handed. It keeps the task, the number of turns and the tools' memory, all of which a
replay of the actions restores.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

import msgspec

from rock_env.env import FreshBoxes, Info, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InfraError, InvalidArgument, Unimplemented
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.terminal.catalog import FOLDER, scenario, toolbox
from sandboxes.terminal.checks import Check
from sandboxes.terminal.grade import grade
from sandboxes.terminal.params import TerminalParams, narrow
from sandboxes.terminal.scenario import Scenario, Service
from sandboxes.terminal.watch import Note, became, note

__all__ = ["TerminalEnv", "make"]

_SETUP_S = 60.0
_READY_S = 20.0
_MOST_LISTED = 60
_SETTLE = """\
set -euo pipefail
cd "$1"
( eval "$2" ) > /dev/null
find . -exec touch -h -d 2024-03-05T09:00:00Z {} +
"""
_LIST = r"""
cd "$1" && find . \( -name .git -prune -printf '%P/\n' \) -o \( ! -type d -printf '%P\n' \) | LC_ALL=C sort
"""


_UNTIL = 'until [ -e "$1" ]; do sleep 0.02; done'


class TerminalEnv:
    """One episode at a time over the sandbox it is handed.

    Satisfies `RestorableSandboxEnv`, `FreshGraded` and `KeepsRunning`.
    """

    def __init__(self, params: TerminalParams) -> None:
        self._params = params
        self._task = ""
        self._turns = 0
        self._tools = toolbox(params)
        self._note = Note({}, ())
        self._became: list[tuple[Check, str]] | None = None
        """What became of the task's processes, once a grade has ended them."""

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Lay out the task in the fresh sandbox and start its processes; `seed` changes nothing."""
        drawn = scenario(task.payload)
        for path, content in task.files:
            await sandbox.write_file(path, content)
        await _settle(sandbox, drawn)
        ids = [await _start(sandbox, service) for service in drawn.services]
        self._note, self._became = await note(sandbox, drawn, FOLDER, ids), None
        listed = await sandbox.exec(["bash", "-c", _LIST, "bash", FOLDER])
        if not listed.ok:
            raise InfraError(f"cannot list the task's folder in the sandbox: {listed}")
        self._task, self._turns, self._tools = task.payload, 0, toolbox(self._params)
        names = listed.stdout.decode(errors="replace").splitlines()
        listing = "\n".join(names[:_MOST_LISTED])
        if len(names) > _MOST_LISTED:
            listing += f"\n... and {len(names) - _MOST_LISTED} more"
        return f"You are in the folder {FOLDER}. Its files:\n{listing}", {"task": task.payload}

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        """Carry out one tool call, or end the task."""
        if not self._task:
            raise FailedPrecondition("step before reset: reset the environment first")
        self._turns += 1
        reply = await self._tools.act(sandbox, action)
        truncated = not reply.submitted and self._turns >= self._params.max_turns
        return StepResult(reply.text, terminated=reply.submitted, truncated=truncated, info=reply.info)

    async def grade(self, box: Sandbox, fresh: FreshBoxes) -> Verdict:
        """Grade a copy of the files the agent left; where the backend cannot copy boxes, the files themselves."""
        await self._end_processes(box)
        async with AsyncExitStack() as lent:
            try:
                graded = await lent.enter_async_context(fresh.fork())
            except Unimplemented:
                graded = box
            except InvalidArgument as error:  # it left what no copy can have
                return Verdict(0.0, passed=False, details=error.message)
            return await self._grade(graded)

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        """Grade the files as they are now. Ends what the agent left running."""
        await self._end_processes(sandbox)
        return await self._grade(sandbox)

    def keeps_running(self) -> bool:
        """Return True: a grade first asks what became of the task's processes, and ends them itself."""
        return True

    async def _end_processes(self, box: Sandbox) -> None:
        if self._task and self._became is None:
            self._became = await became(box, scenario(self._task), self._note)
        await box.kill_all()

    async def _grade(self, box: Sandbox) -> Verdict:
        if not self._task:
            raise FailedPrecondition("grading before reset: reset the environment first")
        checks = scenario(self._task).checks
        return await grade(
            box, checks, folder=FOLDER, partial=self._params.partial, processes=self._became or ()
        )

    def snapshot(self) -> bytes:
        """Return what is not in the sandbox. Raise `Unimplemented` for a task with running processes, which no copy
        of the files has: its recorded actions are its checkpoint.
        """
        if scenario(self._task).services:
            raise Unimplemented(f"the terminal task {self._task} has running processes: replay it instead.")
        return msgspec.msgpack.encode((self._task, self._turns, self._tools.snapshot()))

    def restore(self, state: bytes) -> None:
        """Go on from `snapshot()`'s bytes."""
        try:
            task, turns, tools = msgspec.msgpack.decode(state, type=tuple[str, int, bytes])
        except msgspec.DecodeError as error:
            raise InvalidArgument(
                f"not a terminal snapshot: got {state[:40]!r}. Pass the bytes that snapshot() returned."
            ) from error
        self._task, self._turns, self._tools = task, turns, toolbox(self._params)
        self._note, self._became = Note({}, ()), None
        self._tools.restore(tools)


async def _settle(sandbox: Sandbox, drawn: Scenario) -> None:
    """Run the task's own set-up, and give every file the same time, so that equal tasks look equal."""
    made = await sandbox.exec(["mkdir", "-p", FOLDER])
    if made.ok:
        made = await sandbox.exec(
            ["bash", "-c", _SETTLE, "bash", FOLDER, drawn.setup or ":"], timeout_s=_SETUP_S
        )
    if not made.ok:
        raise InfraError(
            f"cannot set the task up in the sandbox: {made}. Are bash, coreutils, git and python3 there?"
        )


async def _start(sandbox: Sandbox, service: Service) -> str:
    """Start a process of the task, tell it its secret, wait until it is up, and return the box's name of it."""
    process = await sandbox.start_process(service.argv, env=dict(service.env), cwd=FOLDER)
    async with sandbox.process_logs(process, follow=True) as command:
        command.write_stdin(f"{service.secret}\n".encode())
        if not service.answer:
            command.close_stdin()
        up = await sandbox.exec(
            ["bash", "-c", _UNTIL, "bash", f"{FOLDER}/{service.ready}"], timeout_s=_READY_S
        )
    if not up.ok:
        raise InfraError(f"a process of the task did not come up: {service.argv}: {up}")
    return process


def make(params: EnvParams) -> TerminalEnv:
    """Build one environment. Raise `InvalidArgument` for another environment's arguments."""
    return TerminalEnv(narrow(params))
