"""The swe environment, played in real sandboxes: solvable, not for free, and graded by what is in the box.

What is done to cheat the grade is in tests/escape/test_reward_hacks.py.
"""

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
from rock_env.plugins import load_env
from rock_env.spec import TaskSpec
from sandboxes.swe import grade as grading
from sandboxes.swe import run_in_box
from sandboxes.swe.catalog import load_task
from sandboxes.swe.data import SweTask
from sandboxes.swe.params import SweParams

ENV = load_env("swe")
PARAMS = SweParams(source="handmade")
TASKS = [
    ENV.tasks(PARAMS).get(split, index)
    for split in ("train", "held_out")
    for index in range(ENV.tasks(PARAMS).count(split))
]
PLANTED = SweParams(source="factory")
TABSPLIT = next(task for task in TASKS if task.payload == "tabsplit")


@pytest.fixture
def fenced() -> bool:
    return not why_not_isolated()


@pytest.fixture
async def backend(tmp_path: Path, fenced: bool) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(root=tmp_path, isolation="namespaces" if fenced else "none")
    yield made
    await made.close()


async def start(
    backend: ProcessBackend, task: TaskSpec, box_id: str = "box", params: SweParams = PARAMS
) -> tuple[SandboxEnv, GuestBox, str]:
    assert ENV.sandbox is not None
    box = await backend.create(ENV.sandbox, sandbox_id=box_id)
    env = cast("SandboxEnv", ENV.factory(params))
    observation, _ = await env.reset(box, task, seed=0)
    return env, box, observation


async def graded(backend: ProcessBackend, env: SandboxEnv, box: GuestBox) -> Verdict:
    """Do what the host does."""
    assert isinstance(env, FreshGraded)
    assert ENV.sandbox is not None
    await box.kill_all()
    return await env.grade(box, BackendBoxes(backend, ENV.sandbox))


async def solve(
    env: SandboxEnv, box: GuestBox, task: TaskSpec, first: str, params: SweParams = PARAMS
) -> list[StepResult]:
    oracle, observation = ENV.oracle(params, task), first
    results: list[StepResult] = []
    while not (results and results[-1].terminated):
        results.append(await env.step(box, oracle(observation)))
        observation = results[-1].observation
    return results


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.payload)
async def test_the_oracle_scores_one_and_doing_nothing_scores_zero(
    backend: ProcessBackend, task: TaskSpec
) -> None:
    env, box, first = await start(backend, task)
    untouched = await graded(backend, env, box)
    assert (untouched.reward, untouched.details) == (0.0, "no source file of the package was changed")
    await env.step(box, f"echo '# looked at' >> {task.payload}/__init__.py")
    before = await graded(backend, env, box)
    assert (before.reward, before.passed) == (0.0, False)
    data = load_task(PARAMS, task.payload)
    count = len(data.fail_to_pass) + len(data.pass_to_pass)
    score = f"{len(data.pass_to_pass)} of {count} hidden tests passed"
    assert before.details == f"{score}; not: {', '.join(data.fail_to_pass)}", "task.toml tells them apart"
    results = await solve(env, box, task, first)
    assert [result.reward for result in results] == [0.0] * len(results)
    after = await graded(backend, env, box)
    assert (after.reward, after.passed) == (1.0, True)


async def first_try(
    backend: ProcessBackend, params: SweParams, task: TaskSpec
) -> tuple[Verdict, list[StepResult], Verdict]:
    """Return the grade of a changed but not repaired project, the expert's turns, and the grade of these."""
    env, box, first = await start(backend, task, params=params)
    file = next(path for path, _ in task.files if path.endswith("/__init__.py"))
    await env.step(box, f"echo '# looked at' >> ../{file}")
    before = await graded(backend, env, box)
    results = await solve(env, box, task, first, params)
    return before, results, await graded(backend, env, box)


@pytest.mark.parametrize("split", ["train", "held_out_family"])
async def test_a_planted_bug_is_repaired_by_the_expert_and_not_by_a_comment(
    backend: ProcessBackend, split: str
) -> None:
    tasks = ENV.tasks(PLANTED)
    every = (tasks.get(split, index) for index in range(tasks.count(split)))
    task = next(task for task in every if "undo" in load_task(PLANTED, task.payload).solution)
    before, results, after = await first_try(backend, PLANTED, task)
    data = load_task(PLANTED, task.payload)
    score = (
        f"{len(data.pass_to_pass)} of {len(data.pass_to_pass) + len(data.fail_to_pass)} hidden tests passed"
    )
    assert (before.reward, before.details) == (0.0, f"{score}; not: {', '.join(data.fail_to_pass)}")
    assert not any(result.truncated for result in results)
    assert [result.info for result in results if result.info] == [{"undoes": 2}]
    ends = [result.observation.split("\n")[0] for result in results if result.observation.startswith("[exit")]
    assert ends == ["[exit code 1]", "[exit code 1]", "[exit code 0]"], "seen, tried in vain, repaired"
    assert (after.reward, after.passed) == (1.0, True)


async def test_a_copy_goes_on_where_the_first_was(backend: ProcessBackend) -> None:
    task = ENV.tasks(PLANTED).get("train", 0)
    env, box, _ = await start(backend, task, params=PLANTED)
    file = next(path for path, _ in task.files if path.endswith("/__init__.py"))
    await env.step(box, f"edit ../{file}\n<<<<<<<\n__all__\n=======\n__ALL__\n>>>>>>>")
    assert isinstance(env, RestorableSandboxEnv)
    copy = cast("RestorableSandboxEnv", ENV.factory(PLANTED))
    copy.restore(env.snapshot())
    assert copy.snapshot() == env.snapshot()
    assert (await copy.step(box, "undo")).observation.startswith("Undone: ")
    assert (await copy.step(box, "undo")).info == {"tool_failed": True}


CHECKOUT = {
    "python_programs/halve.py": "def halve(number):\n    return number // 3\n",
    "correct_python_programs/halve.py": "def halve(number):\n    return number // 2\n",
    "json_testcases/halve.json": "[[0], 0]\n[[9], 4]\n[[8], 4]\n",
    "python_programs/last.py": "def last(pair):\n    yield pair.one\n",
    "correct_python_programs/last.py": "def last(pair):\n    yield pair.two\n",
    "python_testcases/pair.py": "class Pair:\n    one, two = 1, 2\n",
    "python_testcases/test_last.py": "import pytest\nfrom pair import Pair\n"
    "if pytest.use_correct:\n    from correct_python_programs.last import last\n"
    "else:\n    from python_programs.last import last\n"
    "\n\ndef test_last():\n    assert list(last(Pair)) == [2]\n",
    "python_programs/root.py": "def root(number, bound):\n    return number\n",
    "correct_python_programs/root.py": "def root(number, bound):\n    while number > 99:\n        pass\n"
    "    return number ** 0.5 + bound / 2\n",
    "json_testcases/root.json": "[[4, 0.5], 2]\n[[9, 0.01], 3]\n[[100, 0.5], 10]\n",
    "python_testcases/test_root.py": "import pytest\n\n\ndef test_root(input_data, expected):\n"
    "    if not pytest.run_slow and input_data == [100, 0.5]:\n        pytest.skip('too slow')\n"
    "    assert root(*input_data) == pytest.approx(expected, abs=input_data[-1])\n",
}


@pytest.mark.parametrize("name", ["halve", "last", "root"])
async def test_a_quixbugs_checkout_is_played(backend: ProcessBackend, tmp_path: Path, name: str) -> None:
    for path, text in CHECKOUT.items():
        (tmp_path / "checkout" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / path).write_text(text)
    params = SweParams(source="quixbugs", path=str(tmp_path / "checkout"))
    tasks = ENV.tasks(params)
    every = [tasks.get(split, index) for split in tasks.splits for index in range(tasks.count(split))]
    assert sorted(task.payload for task in every) == ["halve", "last", "root"]
    task = next(task for task in every if task.payload == name)
    before, results, after = await first_try(backend, params, task)
    assert (before.reward, after.reward) == (0.0, 1.0), (before, after)
    assert results[-2].observation.startswith("[exit code 0]"), results[-2]


async def test_equal_actions_give_equal_observations(backend: ProcessBackend) -> None:
    if why_not_isolated():
        pytest.skip(f"without isolation the folder's name shows: {why_not_isolated()}")
    episodes = []
    for number in range(2):
        env, box, first = await start(backend, TABSPLIT, f"box-{number}")
        results = [await env.step(box, "python -m pytest; env | sort | grep -v ^_")]
        episodes.append((first, results + await solve(env, box, TABSPLIT, first)))
    assert episodes[0] == episodes[1]


async def test_the_agents_box_is_not_changed_by_its_grade(backend: ProcessBackend) -> None:
    env, box, _ = await start(backend, TABSPLIT)
    await env.step(box, "echo '#' >> tabsplit/money.py")
    look = "ls -A | sort; find .. ~ ${TMPDIR:-/tmp} -name '*test_split*' -o -name 'run-*'"
    looks = []
    for _ in range(2):
        looks.append((await env.step(box, look)).observation)
        assert not (await graded(backend, env, box)).passed
    assert looks[0] == looks[1] == "[exit code 0]\nREADME.md\npyproject.toml\ntabsplit\ntests"
    with pytest.raises(Unimplemented):
        await env.evaluate(box)


async def test_an_untouched_package_needs_no_run(backend: ProcessBackend) -> None:
    env, box, _ = await start(backend, TABSPLIT)
    await env.step(box, "rm tests/*; echo 1 > tests/y.py; touch tabsplit/*.py; echo 1 > tabsplit/data.txt")
    assert ENV.sandbox is not None
    assert isinstance(env, FreshGraded)
    boxes = BackendBoxes(backend, ENV.sandbox)
    assert not (await env.grade(box, boxes)).passed
    assert boxes.lent == []


async def test_a_project_that_never_ends_scores_zero(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = grading._RUNNER.replace(f"CPU_S = {run_in_box.CPU_S}", "CPU_S = 1")
    assert quick != grading._RUNNER
    monkeypatch.setattr(grading, "_RUNNER", quick)
    env, box, _ = await start(backend, TABSPLIT)
    await env.step(box, "echo 'while True: pass' >> tabsplit/__init__.py")
    verdict = await graded(backend, env, box)
    assert not verdict.passed
    assert "did not run to their end (signal" in verdict.details


FIXTURES = b"""
import logging, subprocess, sys, unittest, warnings
import pytest
from made import one

def test_output(capfd):
    print("out")
    subprocess.run([sys.executable, "-c", "print('child')"], check=True)
    assert capfd.readouterr().out == "out\\nchild\\n"

def test_logs(caplog, tmp_path, monkeypatch):
    monkeypatch.setattr("builtins.len", lambda _: 7)
    logging.getLogger().warning("said")
    (tmp_path / "f").write_text("x")
    assert one() == 1
    assert caplog.messages == ["said"]

def test_warnings(recwarn, request):
    warnings.warn("careful")
    with pytest.warns(UserWarning):
        warnings.warn("again")
    assert str(recwarn.pop().message) == "careful"

@pytest.fixture(params=[1, 2])
def number(request):
    return request.param

def test_a_fixture_with_cases(number):
    assert one() * number == number

class TestOld(unittest.TestCase):
    def setUp(self):
        self.value = one()
    def test_value(self):
        with self.subTest(1):
            self.assertEqual(self.value, 1)
"""


async def test_hidden_tests_may_use_what_pytest_offers(backend: ProcessBackend) -> None:
    names = ("test_output", "test_logs", "test_warnings", "test_a_fixture_with_cases", "TestOld::test_value")
    made = SweTask(
        key="project",
        name="project",
        report="",
        repo=(("made/__init__.py", b"def one():\n    return 2\n"), ("made/data.txt", b"x")),
        hidden=(("deep/test_made.py", FIXTURES),),
        fail_to_pass=tuple(f"deep/test_made.py::{name}" for name in names),
        pass_to_pass=(),
        solution=(),
    )
    assert ENV.sandbox is not None
    box = await backend.create(ENV.sandbox, sandbox_id="box")
    await box.write_file("project/made/__init__.py", b"def one():\n    return 1\n")
    verdict = await grading.grade(box, BackendBoxes(backend, ENV.sandbox), made)
    assert (verdict.details, verdict.passed) == ("5 of 5 hidden tests passed", True)


async def test_what_the_agent_left_running_ends_before_grading(backend: ProcessBackend) -> None:
    env, box, _ = await start(backend, TABSPLIT)
    await env.step(box, "echo '#' >> tabsplit/money.py; (while :; do date; done) >&- & echo $! > ../pid")
    assert "hidden tests passed" in (await graded(backend, env, box)).details
    assert (await box.exec(["bash", "-c", "kill -0 $(cat pid)"])).exit_code == 1


async def test_without_pytest_grading_fails_and_does_not_score(tmp_path: Path, fenced: bool) -> None:
    if not fenced:
        pytest.skip(f"no isolation here: {why_not_isolated()}")
    backend = ProcessBackend(root=tmp_path, isolation="namespaces", python_packages=())
    env, box, _ = await start(backend, TABSPLIT)
    await env.step(box, "echo '#' >> tabsplit/money.py")
    with pytest.raises(InfraError, match=r"(?s)No module named .pytest.*pip install pytest"):
        await graded(backend, env, box)
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
        await graded(backend, env, box)


async def test_turns_are_counted_and_bad_actions_told(backend: ProcessBackend) -> None:
    assert ENV.sandbox is not None
    box = await backend.create(ENV.sandbox, sandbox_id="box")
    short = SweParams(source="handmade", max_turns=3, command_timeout_s=4.0, max_output_chars=200)
    env = cast("SandboxEnv", ENV.factory(short))
    with pytest.raises(FailedPrecondition):
        await env.step(box, "ls")
    await env.reset(box, TABSPLIT, seed=0)
    illegal = await env.step(box, "```bash\nls\n```\n```bash\npwd\n```")
    assert illegal.info == {"illegal": True}
    assert not illegal.truncated
    slow = await env.step(box, "echo begun; sleep 600")
    assert slow.observation == "[timed out after 4 s and was killed]\nbegun"
    last = await env.step(box, "seq 1000")
    assert last.truncated
    assert not last.terminated
    assert last.observation.startswith("[exit code 0]\n1\n2\n")
    assert " left out; see them with " in last.observation
    assert last.observation.endswith("999\n1000")


def test_every_hand_written_task_is_in_one_split() -> None:
    assert sorted(task.payload for task in TASKS) == ["keepsake", "runorder", "tabsplit"]


@pytest.mark.parametrize("number", range(3))
async def test_honest_variants_are_paid(backend: ProcessBackend, number: int) -> None:
    tasks = ENV.tasks(PLANTED)
    task = tasks.get(tasks.splits[number], 11)
    variants = ENV.honest(PLANTED, task)
    assert len(variants) >= 12
    for name, actions in variants.items():
        env, box, _ = await start(backend, task, f"{number}-{name.replace(' ', '-')}", PLANTED)
        results = [await env.step(box, action) for action in actions]
        assert results[-2].observation.startswith("[exit code 0]"), (name, results[-2])
        verdict = await graded(backend, env, box)
        assert verdict.passed, (name, verdict)
        await box.close()


async def test_what_counts_of_a_project_is_bounded(backend: ProcessBackend) -> None:
    task = ENV.tasks(PLANTED).get("train", 0)
    for name, script in (
        ("files", f"for i in $(seq {grading.MAX_FILES}); do : > x$i; done"),
        ("bytes", f"head -c {grading.MAX_BYTES} /dev/zero > x"),
    ):
        env, box, _ = await start(backend, task, name, PLANTED)
        await env.step(box, script)
        verdict = await graded(backend, env, box)
        assert (verdict.reward, verdict.passed) == (0.0, False)
        assert "grew too large" in verdict.details
    assert f"{grading.MAX_FILES} with {grading.MAX_BYTES >> 20} MiB" in task.instruction
