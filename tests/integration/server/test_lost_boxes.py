"""Server, zygote and guests of process boxes killed at any moment: no process, control group, mount or file stays."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from rock_env.backends.process.backend import ProcessBackend, why_not_fenced
from rock_env.spec import SandboxSpec

OWNER = """
import asyncio, itertools, sys
from pathlib import Path
from rock_env.backends.process.backend import ProcessBackend
from rock_env.spec import SandboxSpec

async def main():
    backend = ProcessBackend(root=Path(sys.argv[1]), isolation="namespaces")
    await backend.isolation()
    print(backend._ready.launcher.pid, flush=True)
    for round in itertools.count():
        made = [backend.create(SandboxSpec(), sandbox_id=f"box-{round}-{n}", durable=n % 2 == 0) for n in range(3)]
        boxes = await asyncio.gather(*made)
        print("round", flush=True)
        for box in boxes:
            await box.exec(["bash", "-c", "echo x > file; setsid -f sleep 600"])
        await backend.snapshot(boxes[0].id, snapshot_id=f"snap-{round}")
        await boxes[2].close()

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def _needs_a_fence() -> None:
    if why := asyncio.run(why_not_fenced()):
        pytest.skip(f"no isolation here: {why}")


def processes_of(state: Path) -> set[int]:
    """Return the living processes whose mounts come from `state`: its zygotes and all that is in its boxes."""
    found = set()
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            mounts = Path(f"/proc/{pid}/mountinfo").read_text()
            if f"{state}/" in mounts and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.add(pid)
    return found


def groups_of(state: Path) -> list[str]:
    """Return the control groups below those of `state`."""
    name = hashlib.sha256(os.fsencode(state)).hexdigest()[:12]
    return [top for top, _, _ in os.walk("/sys/fs/cgroup") if f"/rock/{name}." in top]


def ends(state: Path, *, but: set[int]) -> None:
    """Wait until no process of `state` lives but those named."""
    until = time.monotonic() + 30
    while left := processes_of(state) - but:
        assert time.monotonic() < until, f"still there after 30 s: {left}"
        time.sleep(0.02)


def start(state: Path) -> tuple[subprocess.Popen[str], int]:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(state)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    return owner, int(owner.stdout.readline())


async def clean_up(state: Path) -> tuple[set[str], set[str]]:
    """Do what the next server does; return which boxes could be taken up and which were only to be destroyed."""
    backend = ProcessBackend(root=state, isolation="namespaces")
    taken, orphans = set(), set()
    for box_id in await backend.census():
        box = await backend.adopt(box_id, spec=SandboxSpec())
        if box is None:
            orphans.add(box_id)
            continue
        taken.add(box_id)
        assert (await box.exec(["true"])).ok
    assert set(await backend.census()) == taken
    for snapshot in await backend.snapshots():
        box = await backend.create(SandboxSpec(), sandbox_id=f"of-{snapshot}", snapshot=snapshot)
        assert (await box.exec(["cat", "file"])).stdout == b"x\n", "a layer that is listed is whole"
        await box.close()
    for box_id in taken:
        await backend.destroy(box_id)
    for snapshot in await backend.snapshots():
        await backend.delete_snapshot(snapshot)
    await backend.close()
    return taken, orphans


@pytest.mark.parametrize("victims", ["server", "zygote first", "server first"])
def test_killed_at_any_moment(victims: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    taken: set[str] = set()
    for attempt in range(4):
        owner, zygote = start(state)
        assert owner.stdout is not None
        if attempt:
            owner.stdout.readline()
        time.sleep(random.uniform(0, 0.1))
        if victims == "zygote first":
            os.kill(zygote, signal.SIGKILL)
        owner.kill()
        if victims == "server first":
            with contextlib.suppress(ProcessLookupError):  # it noticed and ended already
                os.kill(zygote, signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
        kept, _ = asyncio.run(clean_up(state))
        taken |= kept
        ends(state, but=set())
        assert not groups_of(state)
        assert not state.exists() or list(state.iterdir()) == []
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert taken, "durable boxes live on"


async def test_a_killed_guest_takes_its_box_along(tmp_path: Path) -> None:
    state = tmp_path / "state"
    backend = ProcessBackend(root=state, isolation="namespaces")
    box = await backend.create(SandboxSpec(), sandbox_id="box")
    await box.exec(["bash", "-c", "setsid -f bash -c 'trap \"\" TERM HUP; sleep 600'"])
    assert backend._ready is not None
    zygote = backend._ready.launcher.pid
    assert len(await asyncio.to_thread(processes_of, state)) >= 3
    psutil.Process(box.pid).kill()
    assert "ended with status -9" in await box.lost()
    await asyncio.to_thread(ends, state, but={zygote})
    await box.close()
    assert not groups_of(state)
    await backend.close()
    assert not await asyncio.to_thread(processes_of, state)
    assert await asyncio.to_thread(lambda: list(state.iterdir())) == []
