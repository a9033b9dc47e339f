"""The environment of a task set: an agent with tools in a box of the task's own image, graded by the task's verifier.

Made by `make_env_spec` from what the readers of the formats return, for `ale env register` and for anyone's own module. The
rules act only through the box they are handed; what they remember beside it is the task, the number of turns and edits
to take back.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec
from pydantic import Field

from rock_env.env import FreshBoxes, Info, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InfraError, InvalidArgument, Unimplemented
from rock_env.grading import grade_task
from rock_env.grading.model import Build, Task
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, EnvSpec, Picture, SandboxSpec, TaskSpec
from rock_env.tasksets.edits import write_action
from rock_env.tasksets.source import TaskSetTasks
from rock_env.tools import Toolbox

__all__ = ["TaskEnv", "TaskSetParams", "make_env_spec", "solution_actions"]

_SETUP_TIMEOUT_S = 300.0
_LIFE_S = 3600.0
_MOST_LISTED = 50
_WORD = re.compile(r"[\w./+-]{1,200}")
_MOST_WORDS = 5000


class TaskSetParams(EnvParams):
    """Arguments of an environment made of tasks."""

    max_turns: int = Field(default=50, ge=1, le=1000)
    """After so many actions the episode is cut off."""
    command_timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """A command that runs longer is killed; the agent is told and goes on."""
    max_output_chars: int = Field(default=4000, ge=200, le=100_000)
    """Of a command's output the agent sees so much, beginning and end."""


class _State(msgspec.Struct, frozen=True):
    """What an episode remembers outside of its box."""

    task: str
    turns: int
    tools: bytes


class TaskEnv:
    """One episode at a time over the box it is handed.

    Satisfies `RestorableSandboxEnv`, `FreshGraded` and `KeepsRunning`.
    """

    def __init__(self, params: TaskSetParams, tasks: Mapping[str, Task]) -> None:
        self._params = params
        self._tasks = tasks
        self._task: Task | None = None
        self._turns = 0
        self._tools = Toolbox("", "")

    async def reset(self, sandbox: Sandbox, task: TaskSpec, seed: int) -> tuple[str, Info]:
        """Prepare the fresh box; `seed` changes nothing."""
        self._task, self._turns = self._find(task.payload), 0
        await self._prepare(sandbox)
        self._tools = self._toolbox(self._task)
        folder = self._task.workdir or await _working_folder(sandbox)
        entries = sorted(entry.path for entry in await sandbox.list_files(folder))
        listed = "\n".join(entries[:_MOST_LISTED]) or "(it is empty)"
        more = f"\n... and {len(entries) - _MOST_LISTED} more" if len(entries) > _MOST_LISTED else ""
        return f"You are in the folder {folder}. In it:\n{listed}{more}", {"task": self._task.name}

    async def step(self, sandbox: Sandbox, action: str) -> StepResult:
        """Carry out one tool call, or end the task."""
        self._need_task()
        self._turns += 1
        reply = await self._tools.act(sandbox, action)
        cut = self._turns >= self._params.max_turns and not reply.submitted
        return StepResult(reply.text, terminated=reply.submitted, truncated=cut, info=reply.info)

    async def evaluate(self, sandbox: Sandbox) -> Verdict:
        """Raise `Unimplemented`: the verifiers of tasks get boxes of their own, by `grade`."""
        raise Unimplemented("tasks of task sets are graded by `grade`, which is given boxes for it")

    async def grade(self, box: Sandbox, fresh: FreshBoxes) -> Verdict:
        """Grade in the box that the task's verifier asks for."""
        task = self._need_task()
        return await grade_task(
            box,
            fresh,
            task.verifier,
            prepare=self._prepare,
            work=_place(task),
            asked=_asked(task),
            solve=self._solve if task.solution else None,
        )

    def keeps_running(self) -> bool:
        """Return whether the task's verifier looks at what the agent left running."""
        return self._need_task().verifier.grade_in == "same"

    def snapshot(self) -> bytes:
        """Return the task, the number of turns and the edits that can be taken back; the rest is in the box."""
        task = self._need_task().name
        return msgspec.msgpack.encode(_State(task, self._turns, self._tools.snapshot()))

    def restore(self, state: bytes) -> None:
        """Go on from `snapshot()`'s bytes."""
        known = msgspec.msgpack.decode(state, type=_State)
        self._task, self._turns = self._find(known.task), known.turns
        self._tools = self._toolbox(self._task)
        self._tools.restore(known.tools)

    async def _prepare(self, box: Sandbox) -> None:
        """Make a new box what the agent's is at the beginning."""
        task = self._need_task()
        for file in task.files:
            await box.write_file(file.path, file.content, mode=file.mode)
        for script in task.setup:
            done = await box.exec(["sh", "-c", script], timeout_s=_SETUP_TIMEOUT_S)
            if not done.ok:
                said = (done.stdout + done.stderr)[-500:].decode(errors="replace").strip()
                raise InfraError(
                    f"the setup of task {task.name} failed with exit code {done.exit_code}: {said or done.infra_error}"
                )

    async def _solve(self, box: Sandbox) -> None:
        """Play the task's own solution in a prepared box."""
        task = self._need_task()
        tools = self._toolbox(task)
        for action in solution_actions(task):
            await tools.act(box, action)

    def _find(self, name: str) -> Task:
        if name not in self._tasks:
            raise InvalidArgument(f"no task {name!r} in this task set.")
        return self._tasks[name]

    def _need_task(self) -> Task:
        if self._task is None:
            raise FailedPrecondition("call before reset: reset the environment first")
        return self._task

    def _toolbox(self, task: Task) -> Toolbox:
        params = self._params
        return Toolbox(_place(task), task.test_command, params.command_timeout_s, params.max_output_chars)


def _place(task: Task) -> str:
    """Return where the agent works, as every box of the task understands it."""
    return task.workdir or "."


def _asked(task: Task) -> list[str]:
    """Return the words and absolute paths of an instruction: files of such names are the agent's to write."""
    words = {word.rstrip(".") for word in _WORD.findall(task.instruction)}
    return sorted(words | {posixpath.basename(word) for word in words})[:_MOST_WORDS]


async def _working_folder(box: Sandbox) -> str:
    """Return the box's working folder by its absolute path."""
    done = await box.exec(["pwd"])
    folder = done.stdout.decode(errors="replace").strip()
    if not done.ok or not posixpath.isabs(folder):
        raise InfraError(f"the box does not tell its working folder: {done}")
    return folder


def solution_actions(task: Task) -> tuple[str, ...]:
    """Return all actions of a task's solution: its files put into the box, then its steps; empty without a solution."""
    if not task.solution:
        return ()
    return (
        *(write_action(file.path, file.content, file.mode) for file in task.solution_files),
        *task.solution,
    )


class _Solution:
    """The oracle: the solution's next action, whatever is observed."""

    def __init__(self, actions: Sequence[str]) -> None:
        self._actions = iter(actions)

    def __call__(self, observation: str) -> str:
        return next(self._actions, "submit")


def make_env_spec(
    name: str,
    version: str,
    tasks: Sequence[Task],
    *,
    images: Mapping[Build, str] | None = None,
    summary: str = "",
) -> EnvSpec:
    """Return the environment of some tasks. `images` is what `build_images` returned; without, each task names its image.

    Raise `InvalidArgument` for no tasks, two of one name, or an image that was not built.
    """
    known = {task.name: task for task in tasks}
    if not known:
        raise InvalidArgument(f"the task set {name!r} has no task.")
    if len(known) != len(tasks):
        names = [task.name for task in tasks]
        twice = sorted({other for other in names if names.count(other) > 1})
        raise InvalidArgument(f"task names must differ; there are several {', '.join(twice)}.")
    boxes = {task.name: _sandbox(task, images or {}) for task in tasks}

    def factory(params: EnvParams) -> TaskEnv:
        return TaskEnv(_own(params, name), known)

    def source(params: EnvParams) -> TaskSetTasks:
        return TaskSetTasks(tasks, boxes, _how_to(_own(params, name)))

    def oracle(params: EnvParams, task: TaskSpec) -> _Solution:
        actions = solution_actions(known[task.payload])
        if not actions:
            raise Unimplemented(f"task {task.payload!r} of {name!r} comes without a solution.")
        return _Solution(actions)

    return EnvSpec(
        name=name,
        version=version,
        summary=summary or f"{len(tasks)} tasks; graded by the tests they come with.",
        params=TaskSetParams,
        factory=factory,
        tasks=source,
        oracle=oracle,
        optimum=lambda params, task: 1.0,
        sandbox=boxes[tasks[0].name],
        snapshots=True,
        picture=Picture("diff"),
    )


def _own(params: EnvParams, name: str) -> TaskSetParams:
    if not isinstance(params, TaskSetParams):
        raise InvalidArgument(f"{name} takes TaskSetParams, got {type(params).__name__}")
    return params


def _how_to(params: TaskSetParams) -> Callable[[Task], str]:
    """Return what tells the agent a task: how it acts, and what it is to do."""

    def tell(task: Task) -> str:
        toolbox = Toolbox("", task.test_command, params.command_timeout_s, params.max_output_chars)
        return f"{toolbox.describe()}\n\nThe task:\n{task.instruction}"

    return tell


def _sandbox(task: Task, images: Mapping[Build, str]) -> SandboxSpec:
    image = task.build.image or images.get(task.build, "")
    if not image:
        raise InvalidArgument(
            f"the image of task {task.name!r} was not built: give what `build_images` returns."
        )
    spec = SandboxSpec(
        image=image,
        resources=task.resources,
        network=task.network,
        env=tuple(sorted(task.env)),
        lifetime_s=max(_LIFE_S, 2 * (task.agent_timeout_s + task.verifier.timeout_s)),
    )
    return replace(spec, workdir=task.workdir) if task.workdir else spec
