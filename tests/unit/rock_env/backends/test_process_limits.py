"""What a process box may use, as a whole: memory, processes, files; and that it cannot touch other boxes."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rock_env.backends.process import box_config, cgroups
from rock_env.backends.process.backend import ProcessBackend, why_not_fenced
from rock_env.guest_host.box import GuestBox
from rock_env.spec import Resources, SandboxSpec

SMALL = SandboxSpec(resources=Resources(memory_bytes=48 << 20, disk_bytes=16 << 20, pids=30, cpus=0.5))


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[ProcessBackend]:
    if why := await why_not_fenced():
        pytest.skip(f"no isolation here: {why}")
    made = ProcessBackend(root=tmp_path, isolation="namespaces")
    yield made
    await made.close()


@pytest.fixture
async def grouped(backend: ProcessBackend) -> ProcessBackend:
    await backend.isolation()
    assert backend._ready is not None
    if not backend._ready.plan["cgroups"]:
        pytest.skip("no control groups here: run the tests as root, or in a delegated group")
    return backend


async def out(box: GuestBox, script: str) -> str:
    result = await box.exec(["bash", "-c", script])
    assert not result.infra_error
    return (result.stdout + result.stderr).decode()


def grouping(backend: ProcessBackend, box: str) -> dict[str, Path]:
    assert backend._ready is not None
    places = backend._ready.plan["cgroups"]
    assert isinstance(places, dict)
    return {name: Path(folder, backend._ready.state.group(box)) for name, folder in places.items()}


def members(folders: dict[str, Path]) -> list[set[int]]:
    return [set(map(int, (folder / "cgroup.procs").read_text().split())) for folder in folders.values()]


async def test_full_files_are_an_error_to_who_writes_and_to_nobody_else(backend: ProcessBackend) -> None:
    box = await backend.create(SMALL, sandbox_id="box")
    said = await out(box, "for n in 1 2 3; do head -c 8M /dev/zero > $n || break; done; ls | wc -l")
    assert "No space left on device" in said
    many = "for n in $(seq 5000); do : > /tmp/$n || break; done"
    assert "No space left on device" in await out(box, many), "nor does it hold files without end"
    assert await out(box, "rm -f 1 /tmp/*; echo room > again; cat again") == "room\n"


async def test_processes_are_limited_together_by_memory(grouped: ProcessBackend) -> None:
    box = await grouped.create(SMALL, sandbox_id="box")
    hog = "import time\nkept = b'x' * (30 << 20)\ntime.sleep(600)"
    task = asyncio.create_task(
        box.exec(["bash", "-c", f'for n in 1 2 3 4; do python3 -c "{hog}" & done; wait -n; exit 9'])
    )
    result = await task
    assert (result.exit_code, result.oom_killed) == (9, True), "one of them was killed, and it is said"
    await box.kill_all()
    assert not (await box.exec(["false"])).oom_killed
    assert await out(box, "echo still there") == "still there\n", "and never the guest"
    counter = grouping(grouped, "box")
    text = "".join(
        file.read_text()
        for folder in counter.values()
        for file in (folder / "memory.oom_control", folder / "memory.events")
        if file.exists()
    )
    assert "oom_kill 0" not in text
    assert "oom_kill " in text


async def test_all_processes_of_a_box_are_in_its_groups(grouped: ProcessBackend) -> None:
    box = await grouped.create(SMALL, sandbox_id="box")
    async with box.start(["sleep", "600"]) as command:
        await box.exec(["true"])
        for inside in await asyncio.to_thread(members, grouping(grouped, "box")):
            assert box.pid in inside
            assert len(inside) == 2
        command.kill(signal.SIGKILL)
    folders = grouping(grouped, "box")
    await box.close()
    with pytest.raises(FileNotFoundError):
        members(folders)


async def test_groups_without_a_box_are_removed_at_the_start(grouped: ProcessBackend, tmp_path: Path) -> None:
    for folder in grouping(grouped, "orphan").values():
        folder.mkdir(parents=True)
    assert (await grouped.census())["orphan"] == "control groups"
    await grouped.let_go()
    again = ProcessBackend(root=tmp_path, isolation="namespaces")
    assert await again.census() == {}
    await again.close()
    assert os.listdir(tmp_path) == []  # noqa: PTH208


async def test_without_groups_it_says_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> cgroups.Places:
        raise PermissionError("cannot make a group")

    monkeypatch.setattr(cgroups, "find", refuse)
    backend = ProcessBackend(root=tmp_path, isolation="none")
    with caplog.at_level(logging.WARNING):
        box = await backend.create(SMALL, sandbox_id="box")
    assert "cannot make a group" in caplog.text
    assert "processor time is not" in caplog.text
    assert await out(box, "echo works") == "works\n"
    await backend.close()


async def test_boxes_cannot_reach_each_other(backend: ProcessBackend) -> None:
    one = await backend.create(SMALL, sandbox_id="one")
    await out(one, "echo secret > mine; echo secret > /dev/shm/mine")
    await backend.snapshot("one", snapshot_id="snap")
    fork = await backend.create(SMALL, sandbox_id="fork", snapshot="snap")  # with the same host uid
    server = "import socket, time; s = socket.create_server(('127.0.0.1', 7777)); print('up', flush=True); time.sleep(600)"
    async with one.start(["python3", "-c", server]) as command:
        async for event in command.events():
            assert getattr(event, "data", b"") == b"up\n"
            break
        assert "refused" in await out(fork, "exec 3<>/dev/tcp/127.0.0.1/7777")
        assert await out(fork, "ls /dev/shm; ls -d /proc/[0-9]* | wc -l") != ""
        assert await out(fork, "ls -A /dev/shm") == ""
        assert "No such process" in await out(fork, f"kill -0 {one.pid}")
        assert (
            "Permission denied" in await out(fork, "ls /.files")
            or await out(fork, "ls /.files/upper/work") == ""
        )


def test_nothing_asked_for_is_the_default_and_not_everything() -> None:
    nothing = SandboxSpec(resources=Resources(cpus=0, memory_bytes=0, disk_bytes=0, pids=0))
    assert box_config.limits(nothing) == box_config.limits(SandboxSpec())
    asked = SandboxSpec(resources=Resources(cpus=2, memory_bytes=3, disk_bytes=4, pids=5))
    assert box_config.limits(asked) == {"memory_bytes": 7, "disk_bytes": 4, "pids": 6, "cpus": 2}


async def test_a_box_that_ends_of_full_memory_says_so(grouped: ProcessBackend) -> None:
    """What lies in shared memory outlives whom the kernel kills for it, until only the guest is left to be killed."""
    small = Resources(memory_bytes=20 << 20, disk_bytes=1 << 20)
    box = await grouped.create(SandboxSpec(resources=small), sandbox_id="box")
    fill = "for i in $(seq 60); do head -c 1M /dev/zero > /dev/shm/$i; done"
    assert (await box.exec(["bash", "-c", fill])).oom_killed
    for number in range(40):
        large = ["head", "-c", "15M", "/dev/zero"]  # the guest keeps it, for a command that has a key
        end = await box.exec(large, key=f"{number}", max_output_bytes=16 << 20)
        if end.infra_error:
            break
    assert "status -9; it had run out of memory" in end.infra_error
