"""Process boxes that outlive their server: taken up again, found as orphans, destroyed; and the folder they lie in."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
from fences import why_not_isolated
from waiting import until

from rock_env.backends.process.backend import ProcessBackend
from rock_env.backends.process.state_folder import ProcessStateFolder, spread
from rock_env.errors import FailedPrecondition, InfraError, NotFound, Unimplemented
from rock_env.spec import SandboxSpec

SPEC = SandboxSpec()
GET_FLAGS, TOPDIR = 0x80086601, 0x20000  # linux/fs.h


@pytest.fixture(params=["namespaces", "none"])
async def server(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Callable[[], ProcessBackend]]:
    """Give new backends on the same folder, as a restarted server makes them."""
    if request.param == "namespaces" and await asyncio.to_thread(why_not_isolated):
        pytest.skip(f"no isolation here: {why_not_isolated()}")
    made: list[ProcessBackend] = []

    def start() -> ProcessBackend:
        made.append(ProcessBackend(root=tmp_path / "state", isolation=request.param))
        return made[-1]

    yield start
    for backend in made:
        await backend.close()
    last = start()
    for left in await last.census():
        await last.destroy(left)
    await last.close()
    assert list((tmp_path / "state").iterdir()) == [], "nothing is left at the end"


def lives(pid: int) -> bool:
    """Return whether a process is there; one that ended and was not asked after by init yet is not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_durable_box_is_taken_up_again(server: Callable[[], ProcessBackend]) -> None:
    first = server()
    box = await first.create(SPEC, sandbox_id="box", durable=True)
    brief = await first.create(SPEC, sandbox_id="brief")
    await box.exec(["bash", "-c", "echo kept > file; setsid -f sleep 600"])
    pids = box.pid, brief.pid
    await first.let_go()
    assert not lives(pids[1]), "what is not durable ends with its server"
    with pytest.raises(NotFound):
        await first.create(SPEC, sandbox_id="late")
    second = server()
    assert await second.census() == {"box": f"process {pids[0]}"}
    again = await second.adopt("box", spec=SPEC)
    assert again is not None
    assert (again.id, again.pid) == ("box", pids[0])
    assert (await again.exec(["cat", "file"])).stdout == b"kept\n"
    assert await second.adopt("brief", spec=SPEC) is None
    await second.snapshot("box", snapshot_id="snap")
    await second.restore("box", snapshot="snap")
    await second.let_go()
    third = server()
    restored = await third.adopt("box", spec=SPEC)
    assert restored is not None, "a restored box is durable, too"
    assert (await restored.exec(["cat", "file"])).stdout == b"kept\n"
    await restored.close()
    assert await third.census() == {}
    await third.delete_snapshot("snap")


async def test_a_lease_ends_a_box_without_a_server(server: Callable[[], ProcessBackend]) -> None:
    first = server()
    box = await first.create(SPEC, sandbox_id="box", durable=True, lease_s=0.3)
    pid = box.pid
    await first.let_go()
    for _ in range(1500):
        if not lives(pid):
            break
        await asyncio.sleep(0.02)
    assert not lives(pid)
    second = server()
    assert (await second.census())["box"].startswith("folder"), "what is left of it is listed"
    assert await second.adopt("box", spec=SPEC) is None
    assert await second.census() == {}, "and gone once asked for"


async def test_an_orphan_is_destroyed_without_being_adopted(server: Callable[[], ProcessBackend]) -> None:
    first = server()
    box = await first.create(SPEC, sandbox_id="box", durable=True)
    await box.exec(["bash", "-c", "setsid -f sleep 600"])
    below = psutil.Process(box.pid).children(recursive=True)
    await first.let_go()
    second = server()
    await second.destroy("box")
    await second.destroy("box")
    await second.destroy("never-was")
    assert below
    assert not any(lives(pid) for pid in (box.pid, *(process.pid for process in below)))
    assert await second.census() == {}


async def test_a_box_whose_guest_does_not_know_us_is_an_error(
    server: Callable[[], ProcessBackend], tmp_path: Path
) -> None:
    first = server()
    await first.create(SPEC, sandbox_id="box", durable=True)
    await first.let_go()
    (tmp_path / "state" / "boxes" / "box" / "token").write_bytes(b"x" * 32)
    second = server()
    with pytest.raises(InfraError, match="does not let this server in"):
        await second.adopt("box", spec=SPEC)
    assert "box" in await second.census()


async def test_a_number_that_passed_to_another_process_is_not_the_box(
    server: Callable[[], ProcessBackend], tmp_path: Path
) -> None:
    folder = tmp_path / "state" / "boxes" / "box"
    await asyncio.to_thread(folder.mkdir, parents=True)
    (folder / "process").write_text(f"{os.getpid()} 1\n")
    await server().destroy("box")  # and not this process


async def test_one_server_at_a_time(server: Callable[[], ProcessBackend]) -> None:
    await server().isolation()
    with pytest.raises(FailedPrecondition, match="another server"):
        await server().isolation()


async def test_when_the_zygote_is_killed_boxes_live_and_more_are_made(
    server: Callable[[], ProcessBackend],
) -> None:
    backend = server()
    box = await backend.create(SPEC, sandbox_id="box")
    assert backend._ready is not None
    launcher = backend._ready.launcher
    psutil.Process(launcher.pid).kill()
    await launcher.lost
    assert (await box.exec(["echo", "alive"])).stdout == b"alive\n"
    more = await backend.create(SPEC, sandbox_id="more")
    assert (await more.exec(["echo", "made"])).stdout == b"made\n"
    psutil.Process(box.pid).kill()
    assert "ended with status unknown" in await box.lost()
    assert backend._ready.launcher is not launcher


async def test_a_create_that_the_zygote_dies_over_is_done_by_another(
    server: Callable[[], ProcessBackend],
) -> None:
    backend = server()
    await backend.isolation()
    assert backend._ready is not None
    zygote = psutil.Process(backend._ready.launcher.pid)
    zygote.suspend()
    creating = asyncio.create_task(backend.create(SPEC, sandbox_id="box"))
    for _ in range(1000):
        if backend._ready.launcher._waiting:
            break
        await asyncio.sleep(0)
    zygote.kill()
    box = await creating
    assert (await box.exec(["true"])).exit_code == 0
    assert list(await backend.census()) == ["box"]


async def test_a_create_that_is_cancelled_leaves_nothing(server: Callable[[], ProcessBackend]) -> None:
    backend = server()
    await backend.isolation()
    for turns in (1, 5, 20, 50):
        creating = asyncio.create_task(backend.create(SPEC, sandbox_id="box"))
        for _ in range(turns):
            await asyncio.sleep(0)
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        if creating.cancelled():
            assert await backend.census() == {}
        else:
            await backend.destroy("box")
    assert backend._ready is not None
    for _ in range(500):
        if not psutil.Process(backend._ready.launcher.pid).children():
            break
        await asyncio.sleep(0.02)
    assert not psutil.Process(backend._ready.launcher.pid).children()


async def test_many_creates_of_which_some_are_cancelled_leave_nothing(
    server: Callable[[], ProcessBackend],
) -> None:
    backend = server()
    await backend.isolation()

    async def one(number: int) -> None:
        creating = asyncio.create_task(backend.create(SPEC, sandbox_id=f"box-{number}"))
        if number % 2:
            await asyncio.sleep(number / 1000)
            creating.cancel()
        try:
            box = await creating
        except asyncio.CancelledError:
            return
        await box.exec(["setsid", "-f", "sleep", "600"])
        if number % 3 == 0:
            psutil.Process(box.pid).kill()
        await box.close()

    await asyncio.gather(*map(one, range(40)))
    assert await backend.census() == {}
    assert backend._ready is not None
    assert backend._ready.state.in_groups() == set()
    launcher = psutil.Process(backend._ready.launcher.pid)
    await until(lambda: launcher.children() == [])  # it has yet to wait for the last that ended


async def test_a_state_folder_that_is_gone_is_said(
    server: Callable[[], ProcessBackend], tmp_path: Path
) -> None:
    backend = server()
    await backend.create(SPEC, sandbox_id="box")
    folder = tmp_path / "state" / "layers"
    folder.rmdir()
    folder.touch()
    with pytest.raises(InfraError, match="state folder gone or read-only"):
        await backend.snapshot("box", snapshot_id="snap")
    folder.unlink()
    folder.mkdir()
    await backend.snapshot("box", snapshot_id="snap")
    await backend.delete_snapshot("snap")
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(InfraError, match="Not a directory"):
        await ProcessBackend(root=file / "state").isolation()


async def test_without_a_folder_nothing_is_durable_and_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, living, young = (tmp_path / f"rock-boxes-{name}" for name in ("dead", "living", "young"))
    for folder in (dead, living, young):
        folder.joinpath("boxes", "box").mkdir(parents=True)
        if folder is not young:
            os.utime(folder, (0, 0))
    lock = os.open(living, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    backend = ProcessBackend(isolation="none")
    with pytest.raises(Unimplemented, match="state folder"):
        await backend.create(SPEC, sandbox_id="one", durable=True)
    await backend.create(SPEC, sandbox_id="one")
    await backend.close()
    os.close(lock)
    left = sorted(os.listdir(tmp_path))  # noqa: PTH208
    assert left == ["rock-boxes-living", "rock-boxes-young"]


async def test_boxes_and_layers_are_spread_over_the_disk(tmp_path: Path) -> None:
    if not spread(tmp_path):
        pytest.skip("the file system of the temporary folder is not ext4: spreading is NOT tested")
    state = ProcessStateFolder.take(tmp_path / "state")
    try:
        shown = [flags_of(folder) & TOPDIR for folder in (state.path, state.boxes, state.layers)]
        assert shown == [0, TOPDIR, TOPDIR]
    finally:
        state.release(empty=True)


def flags_of(folder: Path) -> int:
    fd = os.open(folder, os.O_RDONLY)
    try:
        return int.from_bytes(fcntl.ioctl(fd, GET_FLAGS, bytes(8)), sys.byteorder)
    finally:
        os.close(fd)
