"""The swe environment, played in real sandboxes: solvable, not for free, and graded by what is in the box."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import cast

import pytest

from rock_env.backends.bubblewrap import Bubblewrap
from rock_env.backends.process import ProcessBackend, ProcessSandbox
from rock_env.env import SandboxEnv, StepResult
from rock_env.errors import FailedPrecondition, InfraError
from rock_env.plugins import load_env
from rock_env.spec import TaskSpec
from sandboxes.swe import grade as grading
from sandboxes.swe.catalog import load_task, task_names
from sandboxes.swe.params import SweParams

ENV = load_env("swe")
PARAMS = SweParams()
TASKS = [
    ENV.tasks(PARAMS).get(split, index)
    for split in ("train", "held_out")
    for index in range(ENV.tasks(PARAMS).count(split))
]
TABSPLIT = next(task for task in TASKS if task.payload == "tabsplit")


@cache
def why_not_isolated() -> str:
    found = Bubblewrap.find()
    return found if isinstance(found, str) else asyncio.run(found.check())


@pytest.fixture
def fenced() -> bool:
    return not why_not_isolated()


@pytest.fixture
async def backend(tmp_path: Path, fenced: bool) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(root=tmp_path, isolation="bubblewrap" if fenced else "none")
    yield made
    await made.close()


async def start(
    backend: ProcessBackend, task: TaskSpec, box_id: str = "box"
) -> tuple[SandboxEnv, ProcessSandbox, str]:
    assert ENV.sandbox is not None
    box = await backend.create(ENV.sandbox, sandbox_id=box_id)
    env = cast("SandboxEnv", ENV.factory(PARAMS))
    observation, _ = await env.reset(box, task, seed=0)
    return env, box, observation


async def solve(env: SandboxEnv, box: ProcessSandbox, task: TaskSpec, first: str) -> list[StepResult]:
    oracle, observation, results = ENV.oracle(PARAMS, task), first, []
    while not (results and results[-1].terminated):
        results.append(await env.step(box, oracle(observation)))
        observation = results[-1].observation
    return results


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.payload)
async def test_the_oracle_scores_one_and_doing_nothing_scores_zero(
    backend: ProcessBackend, task: TaskSpec
) -> None:
    env, box, first = await start(backend, task)
    before = await env.evaluate(box)
    assert (before.reward, before.passed) == (0.0, False)
    data = load_task(task.payload)
    count = len(data.fail_to_pass) + len(data.pass_to_pass)
    score = f"{len(data.pass_to_pass)} of {count} hidden tests passed"
    assert before.details == f"{score}; not: {', '.join(data.fail_to_pass)}", "task.toml tells them apart"
    results = await solve(env, box, task, first)
    assert [result.reward for result in results] == [0.0] * len(results)
    after = await env.evaluate(box)
    assert (after.reward, after.passed) == (1.0, True)


async def test_equal_actions_give_equal_observations(backend: ProcessBackend) -> None:
    episodes = []
    for number in range(2):
        env, box, first = await start(backend, TABSPLIT, f"box-{number}")
        results = [await env.step(box, "python -m pytest; env | sort | grep -v ^_")]
        episodes.append((first, results + await solve(env, box, TABSPLIT, first)))
    if why_not_isolated():
        pytest.skip("without isolation the folder's name shows")
    assert episodes[0] == episodes[1]


async def test_the_hidden_tests_are_not_in_the_box_before_or_after_grading(backend: ProcessBackend) -> None:
    env, box, _ = await start(backend, TABSPLIT)
    look = "ls -A | sort; find .. ~ ${TMPDIR:-/tmp} -name '*test_split*' -o -name '.verify*'"
    looks = []
    for _ in range(2):
        looks.append((await env.step(box, look)).observation)
        assert not (await env.evaluate(box)).passed
    assert looks[0] == looks[1] == "[exit code 0]\nREADME.md\npyproject.toml\ntabsplit\ntests"


ATTACKS = {
    "settings and plugins": """
        printf 'def pytest_runtest_call(item):\\n    item.obj = lambda: None\\n' | tee conftest.py > ../conftest.py
        printf '[pytest]\\naddopts = --collect-only\\n' | tee pytest.ini > ../pytest.ini
        mkdir -p x.dist-info; printf '[pytest11]\\nx = conftest\\n' > x.dist-info/entry_points.txt
        export PYTEST_ADDOPTS=--collect-only PYTHONPATH=$PWD PYTHONSTARTUP=$PWD/x.py
        """,
    "modules in the way": """
        for name in sitecustomize usercustomize json ast pytest tomllib; do
            echo 'import os; os._exit(0)' | tee $name.py > ../$name.py
        done
        """,
    "exit": "echo 'import os; os._exit(0)' >> tabsplit/__init__.py",
    "skip": "echo 'import pytest; pytest.skip(allow_module_level=True)' >> tabsplit/__init__.py",
    "syntax": "echo '(' >> tabsplit/__init__.py",
    "deletion": "cd ..; rm -rf tabsplit",
    "a link": "cd ..; rm -rf tabsplit; ln -s /etc tabsplit",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_what_is_no_fix_scores_zero(backend: ProcessBackend, attack: str) -> None:
    env, box, _ = await start(backend, TABSPLIT)
    assert (await env.step(box, attack)).observation.startswith("[exit code 0]")
    verdict = await env.evaluate(box)
    assert (verdict.reward, verdict.passed) == (0.0, False)


async def test_a_project_that_hangs_scores_zero(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grading, "_TIMEOUT_S", 1.5)
    env, box, _ = await start(backend, TABSPLIT)
    await env.step(box, "echo 'while True: pass' >> tabsplit/__init__.py")
    verdict = await env.evaluate(box)
    assert not verdict.passed
    assert "did not finish" in verdict.details


async def test_what_the_agent_left_running_ends_before_grading(backend: ProcessBackend) -> None:
    env, box, _ = await start(backend, TABSPLIT)
    await env.step(box, "(while :; do rm -rf ../.verify*; done) & echo $! > ../pid")
    assert "hidden tests passed" in (await env.evaluate(box)).details
    assert (await box.exec(["bash", "-c", "kill -0 $(cat pid)"])).exit_code == 1


async def test_without_pytest_grading_fails_and_does_not_score(tmp_path: Path, fenced: bool) -> None:
    if not fenced:
        pytest.skip(f"no isolation here: {why_not_isolated()}")
    backend = ProcessBackend(root=tmp_path, isolation="bubblewrap", python_packages=())
    env, box, _ = await start(backend, TABSPLIT)
    with pytest.raises(InfraError, match=r"(?s)No module named pytest.*pip install pytest"):
        await env.evaluate(box)
    await backend.close()


async def test_a_lost_box_is_never_a_score(backend: ProcessBackend) -> None:
    env, box, _ = await start(backend, TABSPLIT)
    step = asyncio.create_task(env.step(box, "sleep 600"))
    while not await box.list_files("."):
        pass
    box._link.fail("pulled the plug")
    with pytest.raises(InfraError, match="pulled the plug"):
        await step
    with pytest.raises(InfraError, match="pulled the plug"):
        await env.evaluate(box)


async def test_turns_are_counted_and_bad_actions_told(backend: ProcessBackend) -> None:
    assert ENV.sandbox is not None
    box = await backend.create(ENV.sandbox, sandbox_id="box")
    env = cast("SandboxEnv", ENV.factory(SweParams(max_turns=3, command_timeout_s=0.5, max_output_chars=200)))
    with pytest.raises(FailedPrecondition):
        await env.step(box, "ls")
    await env.reset(box, TABSPLIT, seed=0)
    illegal = await env.step(box, "```bash\nls\n``` and ```bash\npwd\n```")
    assert illegal.info == {"illegal": True}
    assert not illegal.truncated
    slow = await env.step(box, "echo begun; sleep 600")
    assert slow.observation == "[timed out after 0.5 s and was killed]\nbegun"
    last = await env.step(box, "seq 1000")
    assert last.truncated
    assert not last.terminated
    assert last.observation.startswith("[exit code 0]\n1\n2\n")
    assert "characters left out" in last.observation
    assert last.observation.endswith("999\n1000")


def test_every_task_is_in_one_split() -> None:
    assert sorted(task.payload for task in TASKS) == list(task_names())
    assert len(TASKS) == 3
