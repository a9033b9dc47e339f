"""The code environment in real sandboxes: every family is solvable, and a grade sees the answer and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from fences import why_not_isolated
from fresh_boxes import BackendBoxes

from rock_env.backends.process.backend import ProcessBackend
from rock_env.env import FreshGraded, RestorableSandboxEnv, SandboxEnv, StepResult, Verdict
from rock_env.errors import FailedPrecondition, InfraError, Unimplemented
from rock_env.guest_host.box import GuestBox
from rock_env.spec import TaskSpec
from sandboxes.code import ENV, run_in_box
from sandboxes.code import grade as grading
from sandboxes.code.catalog import find
from sandboxes.code.families import TRAINED, UNSEEN

PARAMS = ENV.params()
SOURCE = ENV.tasks(PARAMS)
TASKS = [SOURCE.get(split, index) for split in SOURCE.splits for index in range(SOURCE.count(split))]
FAMILIES = [problems[0].family for problems in (*TRAINED, *UNSEEN)]
FIRST = TASKS[0]


@pytest.fixture
def fenced() -> bool:
    return not why_not_isolated()


@pytest.fixture
async def backend(tmp_path: Path, fenced: bool) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(root=tmp_path, isolation="namespaces" if fenced else "none")
    yield made
    await made.close()


async def start(backend: ProcessBackend, task: TaskSpec = FIRST) -> tuple[SandboxEnv, GuestBox, str]:
    assert ENV.sandbox is not None
    box = await backend.create(ENV.sandbox, sandbox_id="box")
    env = cast("SandboxEnv", ENV.factory(PARAMS))
    observation, info = await env.reset(box, task, seed=0)
    assert info["task"] == task.payload
    return env, box, observation


async def graded(backend: ProcessBackend, env: SandboxEnv, box: GuestBox) -> Verdict:
    """Do what the host does."""
    assert isinstance(env, FreshGraded)
    assert ENV.sandbox is not None
    await box.kill_all()
    return await env.grade(box, BackendBoxes(backend, ENV.sandbox))


async def answered(backend: ProcessBackend, answer: str) -> tuple[StepResult, Verdict]:
    env, box, _ = await start(backend)
    result = await env.step(box, answer)
    return result, await graded(backend, env, box)


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_oracle_scores_one_and_no_answer_scores_zero(backend: ProcessBackend, family: str) -> None:
    task = next(task for task in TASKS if find(task.payload).family == family)
    env, box, observation = await start(backend, task)
    assert observation.startswith(f"def {task.payload}(")
    assert await graded(backend, env, box) == Verdict(0.0, passed=False, details="not answered")
    result = await env.step(box, ENV.oracle(PARAMS, task)(observation))
    assert (result.reward, result.terminated, result.info) == (0.0, True, {})
    verdict = await graded(backend, env, box)
    assert (verdict.reward, verdict.passed, verdict.details) == (1.0, True, "24 of 24 hidden calls right")
    late = await env.step(box, "def nothing(): pass")
    assert (late.observation, late.terminated) == ("Answered already.", True)
    assert (await graded(backend, env, box)).passed, "the first answer counts"


async def test_a_block_with_words_around_it_is_read(backend: ProcessBackend) -> None:
    answer = f"I think:\n```python\nimport math\n{find(FIRST.payload).solution}```\nThat is all."
    result, verdict = await answered(backend, answer)
    assert result.info == {}
    assert verdict.passed


async def test_what_is_no_function_is_a_wrong_answer_and_says_so(backend: ProcessBackend) -> None:
    result, verdict = await answered(backend, "I do not know.")
    assert result.observation == (
        f"No answer: expected a function that begins with `def {FIRST.payload}(`, got 'I do not know.'."
    )
    assert (result.info, verdict.passed) == ({"wrong_format": True}, False)
    assert "does not load (SyntaxError)" in verdict.details


async def test_an_answer_that_is_too_long_is_none(backend: ProcessBackend) -> None:
    result, verdict = await answered(backend, find(FIRST.payload).solution + "#" * grading.MAX_SOURCE_BYTES)
    assert result.observation.startswith("No answer: expected at most 65536 bytes, got 65")
    assert verdict.details == "not answered"


async def test_a_function_that_never_ends_scores_zero(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = grading._RUNNER.replace(f"CPU_S = {run_in_box.CPU_S}", "CPU_S = 1")
    assert quick != grading._RUNNER
    monkeypatch.setattr(grading, "_RUNNER", quick)
    _, verdict = await answered(backend, f"def {FIRST.payload}(*_):\n    while True: pass\n")
    assert not verdict.passed
    assert "did not come to its end (signal" in verdict.details


async def test_a_function_that_sleeps_is_cut_off(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "_TIMEOUT_S", 1.0)
    _, verdict = await answered(backend, f"import time\ndef {FIRST.payload}(*_):\n    time.sleep(600)\n")
    assert verdict.details == "the function did not run as it should: it took longer than 1 s"


async def test_an_answer_finds_no_solution_in_the_box(backend: ProcessBackend, fenced: bool) -> None:
    if not fenced:
        pytest.skip("without isolation the host's files show")
    answer = (
        f"def {FIRST.payload}(*arguments):\n"
        f"    from sandboxes.code.catalog import find\n    space = {{}}\n"
        f"    exec(find({FIRST.payload!r}).solution, space)\n    return space[{FIRST.payload!r}](*arguments)\n"
    )
    _, verdict = await answered(backend, answer)
    assert verdict.details == "0 of 24 hidden calls right; raised ModuleNotFoundError"


async def test_a_copy_goes_on_where_the_first_was(backend: ProcessBackend) -> None:
    env, box, _ = await start(backend)
    assert isinstance(env, RestorableSandboxEnv)
    copy = cast("RestorableSandboxEnv", ENV.factory(PARAMS))
    copy.restore(env.snapshot())
    assert copy.snapshot() == env.snapshot()
    await copy.step(box, find(FIRST.payload).solution)
    assert copy.snapshot() != env.snapshot()
    env.restore(copy.snapshot())
    assert (await env.step(box, "x")).observation == "Answered already."
    assert (await graded(backend, env, box)).passed
    with pytest.raises(Unimplemented):
        await env.evaluate(box)


async def test_a_lost_box_is_never_a_score(backend: ProcessBackend) -> None:
    env, box, _ = await start(backend)
    box._link.fail("pulled the plug")
    with pytest.raises(InfraError, match="pulled the plug"):
        await asyncio.wait_for(graded(backend, env, box), 30)


async def test_nothing_works_before_a_reset(backend: ProcessBackend) -> None:
    assert ENV.sandbox is not None
    box = await backend.create(ENV.sandbox, sandbox_id="box")
    env = cast("RestorableSandboxEnv", ENV.factory(PARAMS))
    with pytest.raises(FailedPrecondition):
        await env.step(box, "x")
    with pytest.raises(FailedPrecondition):
        env.snapshot()
