"""The rules of task sets in real boxes: what a task puts there, what the agent sees, what survives a copy, who grades."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rock_env.backends.process.backend import ProcessBackend
from rock_env.env import FreshGraded, KeepsRunning, RestorableSandboxEnv
from rock_env.errors import FailedPrecondition, InfraError, InvalidArgument, Unimplemented
from rock_env.grading.model import Build, Task, TaskFile, Verifier
from rock_env.sandbox import Sandbox
from rock_env.spec import SandboxSpec, TaskSpec
from rock_env.tasksets.environment import TaskEnv, TaskSetParams

TASK = Task(
    name="sum",
    instruction="Write 3 into the file answer.",
    build=Build(image="some:1"),
    verifier=Verifier(
        command=("sh", "-c", 'test "$(cat answer)" = 3'), parser="exit_code", grade_in="pristine"
    ),
    files=(TaskFile("project/tool.sh", b"echo tool\n", 0o755), TaskFile("project/.hidden", b"h\n")),
    setup=("echo made >project/made", "mkdir project/sub"),
    test_command="echo tested",
)


class Boxes:
    """Real boxes, and the ones that a grade asks for."""

    def __init__(self, root: Path) -> None:
        self._backend = ProcessBackend(root=root, isolation="none")
        self._count = 0

    async def make(self) -> Sandbox:
        self._count += 1
        return await self._backend.create(SandboxSpec(), sandbox_id=f"box-{self._count}")

    async def close(self) -> None:
        await self._backend.close()

    @asynccontextmanager
    async def pristine(self) -> AsyncIterator[Sandbox]:
        yield await self.make()

    @asynccontextmanager
    async def fork(self) -> AsyncIterator[Sandbox]:
        raise Unimplemented("these boxes have no layers")
        yield await self.make()


@pytest.fixture
async def boxes(tmp_path: Path) -> AsyncIterator[Boxes]:
    made = Boxes(tmp_path)
    yield made
    await made.close()


def env(task: Task = TASK, **params: Any) -> TaskEnv:
    return TaskEnv(TaskSetParams(**params), {task.name: task, "other": replace(task, name="other")})


def spec(name: str = "sum") -> TaskSpec:
    return TaskSpec("train/0", "train", 0, "", payload=name)


async def test_a_reset_puts_the_task_into_the_box(boxes: Boxes) -> None:
    box, played = await boxes.make(), env()
    first, info = await played.reset(box, spec(), 0)
    folder = (await box.exec(["pwd"])).stdout.decode().strip()
    assert first == f"You are in the folder {folder}. In it:\nproject"
    assert info == {"task": "sum"}
    assert (
        await played.step(box, "bash cd project && ./tool.sh && cat made")
    ).observation == "[exit code 0]\ntool\nmade"
    assert (await played.step(box, "bash ls -A")).observation.split("\n")[1:] == [
        ".hidden",
        "made",
        "sub",
        "tool.sh",
    ]
    assert (await played.step(box, "run_tests")).observation == "[exit code 0]\ntested"


async def test_turns_end_by_submission_or_by_their_number(boxes: Boxes) -> None:
    box, played = await boxes.make(), env(max_turns=3)
    await played.reset(box, spec(), 0)
    first = await played.step(box, "edit\n")
    assert (first.info, first.terminated, first.truncated) == ({"illegal": True}, False, False)
    second = await played.step(box, "view nowhere")
    assert (second.info, second.terminated, second.truncated) == ({"tool_failed": True}, False, False)
    assert (await played.step(box, "bash true")).truncated
    box = await boxes.make()
    await played.reset(box, spec(), 0)
    done = await played.step(box, "submit")
    assert (done.observation, done.terminated, done.truncated) == ("Submitted.", True, False)


async def test_an_episode_goes_on_where_its_snapshot_was_made(boxes: Boxes) -> None:
    box, played = await boxes.make(), env(max_turns=3)
    await played.reset(box, spec("other"), 0)
    await played.step(box, "edit project/made\n<<<<<<<\nmade\n=======\nchanged\n>>>>>>>")
    state = played.snapshot()
    again = env(max_turns=3)
    again.restore(state)
    assert (await again.step(box, "undo")).observation == "Undone: project/made is as before that edit."
    assert (await again.step(box, "bash cat project/made")).truncated, "two turns and one before"
    assert again.snapshot() != state
    assert isinstance(again, RestorableSandboxEnv)


async def test_a_grade_is_of_the_work_in_the_box_that_the_task_asks_for(boxes: Boxes) -> None:
    box, played = await boxes.make(), env()
    assert isinstance(played, FreshGraded)
    assert isinstance(played, KeepsRunning)
    await played.reset(box, spec(), 0)
    assert not played.keeps_running()
    assert not (await played.grade(box, boxes)).passed
    await played.step(box, "bash echo 3 >answer")
    verdict = await played.grade(box, boxes)
    assert (verdict.reward, verdict.passed) == (1.0, True)
    with pytest.raises(Unimplemented, match="by `grade`"):
        await played.evaluate(box)


async def test_a_service_is_graded_where_it_runs(boxes: Boxes) -> None:
    service = replace(
        TASK, verifier=replace(TASK.verifier, grade_in="same", command=("sh", "-c", "kill -0 $(cat pid)"))
    )
    box, played = await boxes.make(), env(service)
    await played.reset(box, spec(), 0)
    assert played.keeps_running()
    await played.step(box, "bash sleep 100 >/dev/null 2>&1 & echo $! >pid")
    assert (await played.grade(box, boxes)).passed
    await box.kill_all()
    assert not (await played.grade(box, boxes)).passed


async def test_what_cannot_be_played_is_named(boxes: Boxes) -> None:
    box = await boxes.make()
    with pytest.raises(FailedPrecondition, match="reset the environment first"):
        await env().step(box, "submit")
    with pytest.raises(InvalidArgument, match="no task 'absent' in this task set"):
        await env().reset(box, spec("absent"), 0)
    broken = env(replace(TASK, setup=("echo no room >&2; exit 3",)))
    with pytest.raises(InfraError, match="the setup of task sum failed with exit code 3: no room"):
        await broken.reset(box, spec(), 0)
