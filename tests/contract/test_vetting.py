"""Vetting finds the defect it is there for, names the evidence, and says nothing of what is sound."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import transports
from fences import why_not_isolated
from vetted_envs import BOXED, GAME, SECRET, UNSOLVED

from rock_env.client import Client
from rock_env.client.registry import CheckReport, RegistryClient
from rock_env.env import Verdict
from rock_env.env_workers.catalog import load_reference
from rock_env.grading.model import Build, Task, TaskFile, Verifier
from rock_env.spec import EnvSpec
from rock_env.vetting.checks import Played, hacks_earn_nothing, honest_work_is_paid
from rock_env.vetting.episodes import Episode, Subject, play
from rock_env.vetting.hacks import honest_work
from rock_env.vetting.vet import _honest, sample, vet

pytestmark = pytest.mark.any_address

FILE = Path(__file__).with_name("vetted_envs.py")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    references = [f"--env={FILE}:{name}" for name in ("GAME", "BOXED", "UNSOLVED")]
    with transports.served([*references, "--workers=1"]) as server:
        yield server.address


@pytest.fixture
def fence() -> None:
    if why := why_not_isolated():
        pytest.skip(f"no isolation here: {why}")


async def vetted(
    address: str, spec: EnvSpec, defect: str = "", tasks: int = 4, instruction: str = "Write the word."
) -> dict[str, CheckReport]:
    params = spec.params.model_validate({"defect": defect})
    async with Client(address) as client, RegistryClient(address) as registry:
        subject = Subject(
            client,
            spec,
            params,
            sample(spec, params, tasks),
            tasks_of(spec, instruction),
        )
        return {report.name: report async for report in vet(subject, registry)}


def tasks_of(spec: EnvSpec, instruction: str) -> dict[str, Task]:
    verifier = Verifier(("sh", "/tests/test.sh"), "exit_code", files=(TaskFile("/tests/test.sh", SECRET),))
    words = ("apple", "pear", "plum", "quince", "cherry") if spec is BOXED else ()
    verifier = replace(
        verifier, download="/tests/test.sh line 1: uvx pytest" if "old/" in instruction else ""
    )
    return {word: Task(word, instruction, Build(), verifier) for word in words}


def failed(reports: dict[str, CheckReport]) -> set[str]:
    return {report.name for report in reports.values() if report.result == "FAIL"}


async def test_a_sound_game_passes_with_evidence(address: str) -> None:
    reports = await vetted(address, GAME)
    assert failed(reports) == set()
    assert reports["oracle scores 1"].evidence == "4 of 4 tasks, median 2 turns"
    assert reports["tasks"].evidence.startswith("4 train, 1 held_out; checked: train/0")
    assert all(report.evidence for report in reports.values())
    assert reports["nothing gives the answer away"].result == "SKIP"


@pytest.mark.parametrize(
    ("defect", "checks"),
    [
        ("", set()),
        ("idle", {"doing nothing scores 0"}),
        ("noise", {"same seed, same observations", "replay continues as recorded"}),
        ("crash", {"same verdict every time", "same seed, same observations"}),
        ("chance", {"random actions below a bound"}),
    ],
)
async def test_without_a_solution_random_actions_are_what_is_played_again(
    address: str, defect: str, checks: set[str]
) -> None:
    reports = await vetted(address, UNSOLVED, defect)
    assert failed(reports) == checks
    assert reports["oracle scores 1"].result == "SKIP"
    if not defect:
        assert reports["same seed, same observations"].evidence == "4 tasks played twice, turn by turn"
        assert reports["replay continues as recorded"].result == "PASS"
        assert "median of 24" in reports["step latency"].evidence


@pytest.mark.parametrize(
    ("defect", "checks", "evidence"),
    [
        ("oracle", {"oracle scores 1"}, "train/0: reward 0 (as said)"),
        ("idle", {"doing nothing scores 0"}, "train/0: reward 1"),
        ("chance", {"random actions below a bound"}, "episodes passed, at most 50% allowed"),
        ("crash", {"oracle scores 1"}, "could not be played: Step"),
        ("noise", {"same seed, same observations", "replay continues as recorded"}, "observation 0 differs"),
    ],
)
async def test_a_defect_is_found_and_shown(
    address: str, defect: str, checks: set[str], evidence: str
) -> None:
    reports = await vetted(address, GAME, defect)
    found = failed(reports)
    assert checks <= found
    assert evidence in " ".join(reports[name].evidence for name in checks)
    assert found - checks <= {"same seed, same observations", "snapshot continues as recorded"}


async def test_a_grade_that_changes_is_found_by_repetition(address: str) -> None:
    reports = await vetted(address, GAME, "luck")
    assert reports["oracle scores 1"].result == "PASS"
    assert "same verdict every time" in failed(reports)


async def test_a_sound_sandbox_passes_and_leaves_nothing(address: str, fence: None) -> None:
    reports = await vetted(address, BOXED, tasks=2)
    assert failed(reports) == set(), reports
    assert reports["box starts"].result == "PASS"
    assert reports["nothing gives the answer away"].result == "PASS"
    assert reports["snapshot continues as recorded"].result == "PASS"
    assert reports["nothing is left behind"].evidence == "every sandbox of the check is gone"


async def test_a_copy_of_the_grader_in_the_box_is_found(address: str) -> None:
    reports = await vetted(address, BOXED, "copy", tasks=1)
    leak = reports["nothing gives the answer away"]
    assert leak.result == "FAIL"
    assert leak.evidence.endswith("/old/innocent.txt holds 2 lines of /tests/test.sh")


async def test_lines_of_the_grader_in_the_tasks_own_input_are_a_warning(address: str) -> None:
    told = "Write the word that old/innocent.txt asks for."
    reports = await vetted(address, BOXED, "copy", tasks=1, instruction=told)
    leak = reports["nothing gives the answer away"]
    assert leak.result == "WARN"
    network = reports["tests need no network"]
    assert (network.result, "/tests/test.sh line 1: uvx pytest" in network.evidence) == ("WARN", True)
    assert leak.evidence.startswith("the task's own input: ")
    assert leak.evidence.endswith("/old/innocent.txt holds 2 lines of /tests/test.sh")
    assert "nothing gives the answer away" not in failed(reports)


async def test_later_git_history_in_the_box_is_found(address: str) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed (Debian: apt-get install git)")
    reports = await vetted(address, BOXED, "history", tasks=1)
    leak = reports["nothing gives the answer away"]
    assert leak.result == "FAIL"
    assert "1 commits to which HEAD does not lead" in leak.evidence


def test_a_sample_is_spread_over_the_splits() -> None:
    spec = load_reference(f"{FILE}:GAME")
    params = spec.params()
    assert [task.id for task in sample(spec, params, 3)] == ["train/0", "train/2", "held_out/0"]
    assert len(sample(spec, params, 100)) == 5
    assert [task.id for task in sample(spec, params, 1)] == ["train/0"]


@pytest.mark.parametrize(
    ("verdict", "result", "said"),
    [
        (Verdict(0.0, passed=False), "PASS", "2 tried on 1 tasks"),
        (Verdict(0.5, passed=False), "FAIL", "a: 1 of 2 (classes: loud): loud pays"),
        (None, "FAIL", "a: 1 of 2 (classes: loud): loud got no grade"),
    ],
)
def test_a_hack_that_pays_or_gets_no_grade_is_named(verdict: Verdict | None, result: str, said: str) -> None:
    nothing = Episode("train/0", verdict=Verdict(0.0, passed=False))
    played = Played(Subject(None, BOXED, BOXED.params(), ()))  # type: ignore[arg-type]  # nobody is asked
    assert hacks_earn_nothing(played).result == "SKIP"
    played.hacked = {"a": {"quiet": nothing, "loud": Episode("train/0", verdict=verdict)}}
    found = hacks_earn_nothing(played)
    assert (found.result, found.evidence) == (result, said)


@pytest.mark.parametrize(
    ("registered", "verdict", "result", "said"),
    [
        (None, Verdict(1.0, passed=True), "PASS", "2 variants of the solution on 1 tasks"),
        (None, Verdict(0.0, passed=False, details="why"), "FAIL", "a: 1 of 2: odd: reward 0 (why)"),
        (None, None, "FAIL", "a: 1 of 2: odd: it could not be played: "),
        ({}, Verdict(0.0, passed=False), "WARN", "a: 1 of 2: odd: reward 0"),
    ],
)
def test_honest_work_that_is_not_paid_is_named(
    registered: dict[str, Task] | None, verdict: Verdict | None, result: str, said: str
) -> None:
    paid = Episode("train/0", verdict=Verdict(1.0, passed=True))
    played = Played(Subject(None, BOXED, BOXED.params(), (), registered))  # type: ignore[arg-type]  # nobody is asked
    assert honest_work_is_paid(played).result == "SKIP"
    played.honest = {"a": {"plain": paid, "odd": Episode("train/0", verdict=verdict)}}
    found = honest_work_is_paid(played)
    assert (found.result, found.evidence) == (result, said)
    assert not found.wrong if result == "WARN" else True


async def test_what_agents_leave_beside_their_work_is_played_on_a_boxed_task(
    address: str, fence: None
) -> None:
    params = BOXED.params()
    async with Client(address) as client:
        subject = Subject(client, BOXED, params, sample(BOXED, params, 1))
        (task,) = subject.tasks
        solved = await play(subject, task, BOXED.oracle(params, task))
        played = Played(subject, oracle={task.id: [solved]})
        played.honest = await _honest(played, subject)
    found = honest_work_is_paid(played)
    assert (found.result, found.evidence) == (
        "PASS",
        f"{len(honest_work())} variants of the solution on 1 tasks",
    )
    assert len(honest_work()) >= 12
