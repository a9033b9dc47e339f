"""Verifiers in containers, as task formats with images have them: the agent owns the container's files and says nothing."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from docker_engine import BUSYBOX
from fresh_boxes import BackendBoxes

from rock_env.backends.docker.backend import DockerBackend
from rock_env.errors import DiskFull, InfraError
from rock_env.grading import grade_task
from rock_env.grading.model import TaskFile, Verifier
from rock_env.sandbox import Sandbox
from rock_env.spec import Resources, SandboxSpec

SPEC = SandboxSpec(image=BUSYBOX)
TEST = b"""#!/bin/sh
mkdir -p /logs/verifier
test "$(ls /tests)" = test.sh && grep -qx 42 answer && echo 1 > /logs/verifier/reward.txt && exit
echo 0 > /logs/verifier/reward.txt
"""
VERIFIER = Verifier(
    command=("sh", "/tests/test.sh"),
    parser="reward_file",
    files=(TaskFile("/tests/test.sh", TEST, 0o755),),
    report="/logs/verifier",
)


@pytest.fixture
async def box(backend: DockerBackend) -> Sandbox:
    return await backend.create(SPEC, sandbox_id=f"graded-{secrets.token_hex(4)}")


async def test_what_lies_in_the_verifiers_places_does_not_count(backend: DockerBackend, box: Sandbox) -> None:
    fresh = BackendBoxes(backend, SPEC, agent=box.id)

    async def reward(script: str) -> float:
        assert (await box.exec(["sh", "-c", script])).ok
        return (await grade_task(box, fresh, VERIFIER)).reward

    assert await reward("mkdir -p /logs/verifier /tests; echo 1 > /logs/verifier/reward.json") == 0.0
    assert await reward("echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh; echo 42 > answer") == 1.0
    assert (
        await reward(
            "rm -r /logs/verifier; ln -s /tmp /logs/verifier; echo 0 > /tmp/reward.txt; echo x > /tests/x"
        )
        == 1.0
    )
    broken = "rm -f /bin/rm /bin/mkdir /bin/ls /bin/grep; mkdir /bin/rm 2> /dev/null; true"
    assert await reward(broken) == 0.0, "who breaks the verifier's programs gets nothing"
    with pytest.raises(InfraError, match="cannot be run"):
        await grade_task(box, fresh, Verifier(command=("no-such-program",), parser="exit_code"))


def _kill(sandbox_id: str) -> None:
    listed = ["docker", "ps", "-q", "--filter", f"label=rock.sandbox={sandbox_id}"]
    (number,) = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    subprocess.run(["docker", "kill", number], capture_output=True, check=True)


class LosingBoxes(BackendBoxes):
    """The container of the first clean box is killed as soon as it is lent."""

    @asynccontextmanager
    async def pristine(self) -> AsyncIterator[Sandbox]:
        first = not self.lent
        async with super().pristine() as box:
            if first:
                await asyncio.to_thread(_kill, self.lent[0])
            yield box


async def test_a_grade_whose_box_is_lost_is_made_in_another(backend: DockerBackend, box: Sandbox) -> None:
    fresh = LosingBoxes(backend, SPEC, agent=box.id)
    assert (await box.exec(["sh", "-c", "echo 42 > answer"])).ok
    assert (await grade_task(box, fresh, VERIFIER)).reward == 1.0
    assert len(fresh.lent) == 2


SMALL = SandboxSpec(image=BUSYBOX, resources=Resources(disk_bytes=16 << 20, pids=32))
RUNS_IT = b"""#!/bin/sh
mkdir -p /logs/verifier; echo 0 > /logs/verifier/reward.txt
./work && echo 1 > /logs/verifier/reward.txt
"""
FILLS = "for n in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=f$n bs=1M count=8; done"


@pytest.mark.parametrize(
    ("before", "work"),
    [
        ("true", f"{FILLS}; sleep 60"),
        ("true", "for n in $(seq 40); do mkdir d$n; (cd d$n; seq 200 | xargs touch); done; sleep 60"),
        ("true", "for n in $(seq 60); do (sleep 60 < /dev/null > /dev/null 2>&1 &) ; done; exit 1"),
        (FILLS, "sleep 60"),
    ],
    ids=["disk", "files", "processes", "disk before"],
)
async def test_work_that_uses_up_what_its_box_may_have_has_failed(
    backend: DockerBackend, before: str, work: str
) -> None:
    box = await backend.create(SMALL, sandbox_id=f"graded-{secrets.token_hex(4)}")
    verifier = replace(VERIFIER, files=(TaskFile("/tests/test.sh", RUNS_IT, 0o755),), timeout_s=90)
    fresh = BackendBoxes(backend, SMALL, agent=box.id)
    await box.write_file("work", f"#!/bin/sh\n{work}\n".encode(), mode=0o755)
    await box.exec(["sh", "-c", before])
    verdict = await grade_task(box, fresh, verifier)
    assert (verdict.reward, verdict.passed) == (0.0, False)
    if before == "true":  # else the agent's box has ended
        await box.write_file("work", b"#!/bin/sh\n", mode=0o755)
        assert (await grade_task(box, fresh, verifier)).passed, "others have enough"


class FullBoxes(BackendBoxes):
    """The machine's disk is full while the clean boxes of a grade are used."""

    @asynccontextmanager
    async def pristine(self) -> AsyncIterator[Sandbox]:
        async with super().pristine() as box:
            write = box.write_file

            async def full(path: str, content: bytes, **more: Any) -> None:
                if path.startswith("/tests"):
                    raise DiskFull("[Errno 28] No space left on device")
                await write(path, content, **more)

            box.write_file = full  # type: ignore[assignment,method-assign]
            yield box


async def test_a_full_disk_of_the_machine_is_nobodys_failure(backend: DockerBackend, box: Sandbox) -> None:
    with pytest.raises(InfraError, match="No space left"):
        await grade_task(box, FullBoxes(backend, SPEC, agent=box.id), VERIFIER)


COMPARES = b"""#!/bin/sh
mkdir -p /logs/verifier; echo 0 > /logs/verifier/reward.txt
./work; cmp -s out /tests/expected && echo 1 > /logs/verifier/reward.txt
"""


async def test_an_output_that_leads_to_what_is_expected_is_none(backend: DockerBackend, box: Sandbox) -> None:
    files = (TaskFile("/tests/test.sh", COMPARES, 0o755), TaskFile("/tests/expected", b"42\n"))
    verifier = replace(VERIFIER, files=files)
    fresh = BackendBoxes(backend, SPEC, agent=box.id)
    for work, reward in (("ln -s /tests/expected out", 0), ("ln -s / d; ln -s d/tests/expected out", 0)):
        await box.write_file("work", f"#!/bin/sh\n{work}\n".encode(), mode=0o755)
        verdict = await grade_task(box, fresh, verifier)
        assert (verdict.reward, "leads to the verifier" in verdict.details) == (reward, True), verdict
    await box.write_file("work", b"#!/bin/sh\necho 42 > real; ln -s real out\n", mode=0o755)
    assert (await grade_task(box, fresh, verifier)).passed
