"""Verifiers run in real boxes: whose fault a failure is, what an agent may have left in their way, and flaky tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from fences import why_not_isolated
from fresh_boxes import BackendBoxes

from rock_env.backends.process.backend import ProcessBackend
from rock_env.env import Verdict
from rock_env.errors import InfraError, InvalidArgument, UnknownName
from rock_env.grading import Outcome, carry_work, grade_task, repeat, run_verifier
from rock_env.grading.model import TaskFile, Verifier
from rock_env.sandbox import OutputChunk, Sandbox
from rock_env.shell import run_in_shell
from rock_env.spec import Resources, SandboxSpec

SPEC = SandboxSpec()
ISOLATION: Literal["namespaces", "none"] = "none" if why_not_isolated() else "namespaces"


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(root=tmp_path, isolation=ISOLATION)
    yield made
    await made.close()


@pytest.fixture
async def box(backend: ProcessBackend) -> Sandbox:
    return await backend.create(SPEC, sandbox_id="agent")


@pytest.fixture
def fresh(backend: ProcessBackend) -> BackendBoxes:
    return BackendBoxes(backend, SPEC, agent="agent")


def sh(script: str, parser: str = "exit_code", **fields: object) -> Verifier:
    return Verifier(command=("sh", "-c", script), parser=parser, **fields)  # type: ignore[arg-type]


async def prepare(box: Sandbox) -> None:
    """Give a box what the task's boxes have."""
    await box.write_file("project/start", b"as it was")


async def graded(box: Sandbox, fresh: BackendBoxes, verifier: Verifier, work: str = "") -> Verdict:
    return await grade_task(box, fresh, verifier, prepare=prepare, work=work)


async def test_a_verifier_sees_a_fork_a_pristine_box_or_the_box_itself(
    box: Sandbox, fresh: BackendBoxes
) -> None:
    await box.write_file("project/mine.py", b"x")
    files = (TaskFile("check/run.sh", b"cat project/mine.py && touch seen", 0o755),)
    verifier = sh("./check/run.sh", files=files)
    assert (await graded(box, fresh, verifier)).passed
    assert "seen" not in [entry.path for entry in await box.list_files(".")]
    pristine = replace(verifier, grade_in="pristine")
    assert not (await graded(box, fresh, pristine)).passed
    assert (await graded(box, fresh, pristine, work="project")).passed
    assert len(fresh.lent) == 3
    assert (await graded(box, fresh, replace(verifier, grade_in="same"))).passed
    assert "seen" in [entry.path for entry in await box.list_files(".")]
    assert len(fresh.lent) == 3


async def test_tests_that_run_in_the_shell_that_the_agent_left(box: Sandbox, fresh: BackendBoxes) -> None:
    await run_in_shell(box, "export KEY=mine; mkdir -p deep && cd deep && touch here", timeout_s=20)
    looks = sh('test "$KEY $NAME" = "mine yours" && test -e here', env=(("NAME", "yours"),), in_shell=True)
    assert (await graded(box, fresh, looks)).passed
    assert not (await graded(box, fresh, replace(looks, in_shell=False))).passed
    assert not (await graded(box, fresh, replace(looks, grade_in="pristine"))).passed


async def test_the_shell_that_the_agent_left_does_not_run_its_tests(
    box: Sandbox, fresh: BackendBoxes
) -> None:
    lies = "printf '#!/bin/sh\\nexit 0\\n' > bin/tried; cp bin/tried bin/grep; chmod 755 bin/*; export PATH=$PWD/bin:$PATH"
    await run_in_shell(box, f"mkdir bin; {lies}; export OTHER=1 PYTHONPATH=$PWD", timeout_s=20)
    await run_in_shell(
        box, "grep() { true; }; export -f grep; alias env=true; set -a; trap true DEBUG", timeout_s=20
    )
    asked = 'tried && echo "${PYTHONPATH:-none} $BASH_ENV" && '
    for script in ("grep -q plum /dev/null", "bash -c 'grep -q plum /dev/null'", "false"):
        assert not (await graded(box, fresh, sh(script, in_shell=True))).passed
    assert (await graded(box, fresh, sh(f"{asked} test -z $PYTHONPATH", in_shell=True))).passed
    gone = "mkdir gone; cd gone; rmdir ../gone"
    await run_in_shell(box, gone, timeout_s=20)
    assert (await graded(box, fresh, sh("test -d bin", in_shell=True))).passed


async def test_who_does_nothing_where_a_check_needs_the_work_has_failed(
    box: Sandbox, fresh: BackendBoxes
) -> None:
    verifier = sh("mkdir out; ./work && echo 1 > out/reward.txt", "reward_file", report="out")

    async def solve(box: Sandbox) -> None:
        await box.write_file("work", b"#!/bin/sh\n", mode=0o755)

    async def fail(box: Sandbox) -> None:
        await box.write_file("work", b"no program", mode=0o644)

    verdict = await grade_task(box, fresh, verifier, solve=solve)
    assert (verdict.reward, verdict.passed) == (0.0, False)
    assert "nothing without the work" in verdict.details
    for other in (None, fail):
        with pytest.raises(InfraError, match="cannot be used"):
            await grade_task(box, fresh, verifier, solve=other)


async def test_output_environment_and_folder(box: Sandbox) -> None:
    script = 'printf "%s::%s PASSED [100%%]\\n" "$NAME" "$(basename $PWD)"; printf "\\377\\n1 passed in 0.1s\\n"; exit 3'
    await prepare(box)
    report = await run_verifier(box, sh(script, "pytest", env=(("NAME", "x"),), workdir="project"))
    assert report.outcomes == {"x::project": Outcome.PASSED}
    assert (report.exit_code, report.problem) == (3, "")


async def test_the_end_of_a_flood_is_read(box: Sandbox) -> None:
    script = (
        'head -c 30000000 /dev/zero | tr "\\0" x; echo; echo "a::b PASSED [100%]"; echo "1 passed in 0.1s"'
    )
    report = await run_verifier(box, sh(script, "pytest"))
    assert report.outcomes == {"a::b": Outcome.PASSED}
    assert report.tail.endswith("a::b PASSED [100%]\n1 passed in 0.1s")


async def test_a_report_is_read_from_a_file_or_a_folder(box: Sandbox) -> None:
    xml = "<testsuite><testcase name='{}'/></testsuite>"
    script = f'mkdir out; echo "{xml.format("a")}" > out/a.xml; echo "{xml.format("b")}" > out/b.xml'
    assert set((await run_verifier(box, sh(script, "junit", report="out"))).outcomes) == {"a", "b"}
    report = await run_verifier(box, sh(f"rm -rf out; {script}", "junit", report="out/b.xml"))
    assert set(report.outcomes) == {"b"}


async def test_what_the_agent_left_in_the_verifiers_place_is_gone(box: Sandbox, fresh: BackendBoxes) -> None:
    verifier = sh("test ! -e out || ls out; mkdir -p out", "reward_file", report="out")
    for leave in ("mkdir out; echo 1 > out/reward.txt", "ln -s /tmp out", "mkfifo out", "echo 1 > out"):
        assert (await box.exec(["sh", "-c", f"rm -rf out; echo 1 > /tmp/reward.txt; {leave}"])).ok
        report = await run_verifier(box, verifier)
        assert report.problem == (
            "its result cannot be read: the verifier wrote neither reward.json nor reward.txt"
        )


async def test_links_in_a_report_folder_are_not_followed(box: Sandbox) -> None:
    await box.write_file("one", b"1")
    verifier = sh("mkdir out; ln -s $PWD/one out/reward.txt", "reward_file", report="out")
    assert "neither" in (await run_verifier(box, verifier)).problem


async def test_what_cannot_run_anywhere_is_nobodys_failure(box: Sandbox, fresh: BackendBoxes) -> None:
    for verifier, why in (
        (Verifier(command=("no-such-program",), parser="exit_code"), r"cannot be run \(exit code 127\)"),
        (sh("no-such-program", "pytest"), "cannot be run"),
        (sh("echo hello", "pytest"), r"reported no test \(exit code 0\)"),
        (sh("true", "reward_file", report="out"), "neither reward.json nor"),
        (sh("mkdir out; echo nan > out/reward.txt", "reward_file", report="out"), "not a finite"),
    ):
        with pytest.raises(InfraError, match=why):
            await graded(box, fresh, verifier)
    with pytest.raises(UnknownName, match="pytest"):
        await graded(box, fresh, sh("true", "pytset"))


async def test_what_the_agent_broke_is_its_failure(box: Sandbox, fresh: BackendBoxes) -> None:
    verifier = sh("mkdir out && cat project/start && echo 0.5 > out/reward.txt", "reward_file", report="out")
    await prepare(box)
    assert (await graded(box, fresh, verifier)).reward == 0.5
    await box.exec(["rm", "project/start"])
    verdict = await graded(box, fresh, verifier)
    assert (verdict.reward, verdict.passed) == (0.0, False)
    assert verdict.details.startswith("the agent's work broke the verifier: its result cannot be read")


async def test_work_that_cannot_be_had_has_failed_and_a_fault_of_ours_is_no_grade(
    box: Sandbox, fresh: BackendBoxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    verifier = sh("test -e project/mine.py", grade_in="pristine")
    await box.write_file("project/mine.py", b"x")
    assert (await graded(box, fresh, verifier, work="project")).passed
    await box.write_file("project/start/in", b"a folder where the image has a file")
    _has_failed(await graded(box, fresh, verifier, work="project"))
    await box.exec(["rm", "-r", "project/start"])
    with monkeypatch.context() as patched:
        patched.setattr("rock_env.grading.work._MAX_BYTES", 1)
        _has_failed(await graded(box, fresh, verifier, work="project"))

    async def unread(*_: object) -> AsyncIterator[bytes]:
        raise InvalidArgument("the arguments of 'download' are none")
        yield b""

    monkeypatch.setattr(type(box), "download", unread)
    with pytest.raises(InvalidArgument, match="arguments of 'download'"):
        await graded(box, fresh, verifier, work="project")


def _has_failed(verdict: Verdict) -> None:
    assert (verdict.reward, verdict.passed) == (0.0, False)
    assert "the agent's work cannot be taken over" in verdict.details


async def test_a_verifier_that_takes_too_long_is_a_failure(box: Sandbox, fresh: BackendBoxes) -> None:
    verdict = await graded(box, fresh, sh("sleep 600", timeout_s=0.3))
    assert verdict == Verdict(0.0, passed=False, details="the verifier did not finish within 0.3 s")


async def test_a_box_that_is_lost_is_no_grade(box: Sandbox, fresh: BackendBoxes) -> None:
    await box.close()
    with pytest.raises(InfraError):
        await graded(box, fresh, sh("true", grade_in="same"))


async def test_work_is_carried_without_what_steers_tests(backend: ProcessBackend, box: Sandbox) -> None:
    script = """
    mkdir -p project/pkg/__pycache__ project/tests; cd project
    for f in pkg/a.py pkg/b.txt conftest.py pkg/conftest.py tests/test_x.py pkg/x.pth pkg/__pycache__/a.pyc setup.cfg; do
      echo new > $f
    done
    chmod 755 pkg/a.py; ln -s /etc/passwd pkg/link.py; mkfifo pkg/pipe.py
    """
    assert (await box.exec(["sh", "-c", script])).ok
    other = await backend.create(SPEC, sandbox_id="other")
    await other.write_file("project/conftest.py", b"old")
    await other.write_file("project/pkg/a.py", b"old")
    assert await carry_work(box, other, "project") == 2
    seen = await other.exec(
        ["sh", "-c", "cd project; find . -type f | sort | xargs grep . ; test -x pkg/a.py"]
    )
    assert seen.stdout == b"./conftest.py:old\n./pkg/a.py:new\n./pkg/b.txt:new\n"
    assert seen.ok


CROWD = """
import os, time
while True:
    try:
        if not os.fork():
            time.sleep(600)
    except OSError:
        os.write(1, b"full")
        time.sleep(600)
"""


@pytest.mark.skipif(
    ISOLATION == "none", reason=f"without namespaces a box has no disk of its own: {why_not_isolated()}"
)
async def test_work_that_does_not_fit_beside_the_task_has_failed(backend: ProcessBackend) -> None:
    """What a box of the process backend lacks is told by the guest at the call that failed."""
    small = SandboxSpec(resources=Resources(disk_bytes=16 << 20, pids=24))
    box = await backend.create(small, sandbox_id="agent")
    fresh = BackendBoxes(backend, small, agent="agent")

    async def prepare(box: Sandbox) -> None:
        await box.write_file("data", bytes(8 << 20))

    async def verdict(script: str, grade_in: Literal["pristine", "same"] = "pristine") -> Verdict:
        assert not script or (await box.exec(["sh", "-c", f"mkdir -p project; {script}"])).ok
        files = (TaskFile("check", bytes(4 << 20)),)
        verifier = sh("test -e project/done", files=files, grade_in=grade_in)
        return await grade_task(box, fresh, verifier, prepare=prepare, work="project")

    assert (await verdict("touch project/done")).passed
    large = await verdict("head -c 12M /dev/zero > project/large")
    assert (large.reward, "No space left" in large.details) == (0.0, True), large.details
    many = await verdict("rm project/large; mkdir project/d; cd project/d; seq 1000 | xargs touch", "same")
    assert many.passed, "as long as there is room for what the verifier brings"
    async with box.start(["python3", "-c", CROWD]) as command:
        assert isinstance(await anext(command.events()), OutputChunk)
        crowd = await verdict("", "same")
    assert (crowd.reward, "used up" in crowd.details) == (0.0, True), crowd.details


async def test_flaky_tests_are_told(backend: ProcessBackend, tmp_path: Path) -> None:
    seeds = iter(range(10))

    @asynccontextmanager
    async def boxes() -> AsyncIterator[Sandbox]:
        async with BackendBoxes(backend, SPEC).pristine() as box:
            await box.write_file("seed", str(next(seeds) % 2).encode())
            yield box

    steady, ended = 'echo "t::steady PASSED [50%]"; ', '; echo "2 passed in 0.1s"'
    script = (
        steady + 'test $(cat seed) = 0 && echo "t::odd PASSED [80%]" || echo "t::odd FAILED [80%]"' + ended
    )
    found = await repeat(boxes, sh(script, "pytest", must_pass=("t::steady", "t::odd")), times=3)
    assert dict(found.flaky) == {"t::odd": ("passed", "failed")}
    assert (found.rewards, found.problems) == ((1.0, 0.0, 1.0), ())
    rare = steady + 'test $(cat seed) = 0 && echo "t::rare PASSED [9%]"' + ended
    missing = await repeat(boxes, sh(rare, "pytest"), times=2)
    assert set(missing.flaky) == {"t::rare"}
    same = await repeat(boxes, sh(f"{steady}true{ended}", "pytest"), times=2)
    assert (same.flaky, same.problems, same.rewards) == ({}, (), (1.0, 1.0))
    broken = await repeat(boxes, sh("true", "pytest"), times=2)
    assert len(broken.problems) == 2
    with pytest.raises(InvalidArgument):
        await repeat(boxes, sh("true"), times=1)
