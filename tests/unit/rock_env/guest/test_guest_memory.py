"""A command that the kernel killed for memory is told apart, and the guest is never the one chosen."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from bare_guest import bare_guest

from rock_env.guest_host.box import GuestBox

LIMIT_BYTES = 96 << 20
HOG = "bytearray(300 << 20)"


@pytest.fixture
def group() -> Iterator[Path]:
    """Make a memory control group below this process's own, of version 1 or 2."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        parent = Path("/sys/fs/cgroup/memory" if controllers == "memory" else "/sys/fs/cgroup") / path.lstrip(
            "/"
        )
        if controllers not in ("memory", "") or not (parent / "cgroup.procs").exists():
            continue
        made = parent / f"ale-test-{os.getpid()}"
        limit = "memory.limit_in_bytes" if controllers else "memory.max"
        try:
            made.mkdir()
            (made / limit).write_text(str(LIMIT_BYTES))
        except OSError as error:
            pytest.skip(
                f"no memory control group can be made in {parent}: {error}. Run as root, or in a delegated one."
            )
        yield made
        made.rmdir()
        return
    pytest.skip("this machine shows no memory control group; mount one at /sys/fs/cgroup")


@pytest.fixture
async def box(group: Path, tmp_path: Path) -> AsyncIterator[GuestBox]:
    async with bare_guest(tmp_path) as guest:
        (group / "cgroup.procs").write_text(str(guest.process.pid))
        events = group / "memory.oom_control"
        counter = events if events.exists() else group / "memory.events"
        yield guest.box(await guest.configured(oom=str(counter)))


def python(script: str) -> str:
    return f"python3 -I -c '{script}'"


async def test_killed_for_memory_is_told_apart(box: GuestBox) -> None:
    result = await box.exec(["sh", "-c", f"exec {python(HOG)}"])
    assert (result.signal, result.oom_killed, result.timed_out) == (9, True, False)
    child = await box.exec(["sh", "-c", f"{python(HOG)}; echo went on; exit 3"])
    assert (child.exit_code, child.oom_killed) == (3, True), "it failed, for want of its child"
    assert re.search(rb"went on", child.stdout)
    survived = await box.exec(["sh", "-c", f"{python(HOG)}; exit 0"])
    assert (survived.exit_code, survived.oom_killed) == (0, False), "it succeeded all the same"
    for script in ("kill -9 $$", "exit 137", "false"):
        assert not (await box.exec(["sh", "-c", script])).oom_killed, script
    late = await box.exec(["sleep", "600"], timeout_s=0.1)
    assert (late.timed_out, late.oom_killed) == (True, False)


async def test_the_guest_outlives_many_that_fill_the_memory(box: GuestBox) -> None:
    fork = "import os\nfor _ in range(6): os.fork()\nx = bytearray(20 << 20)\nimport time\ntime.sleep(600)"
    result = await box.exec(["python3", "-I", "-c", fork], timeout_s=1)
    assert not result.ok
    await box.kill_all()
    assert (await box.exec(["echo", "alive"])).stdout == b"alive\n"
