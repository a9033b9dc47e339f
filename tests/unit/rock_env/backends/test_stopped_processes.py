"""A zygote or a guest that stands still holds nobody up: it is replaced, or named, within a bound."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from rock_env.backends.process import launcher
from rock_env.backends.process.backend import ProcessBackend, ProcessBox
from rock_env.errors import FailedPrecondition, InfraError
from rock_env.guest_host import link
from rock_env.lifecycle import SandboxState
from rock_env.sandbox import CommandEnd
from rock_env.server.sandboxes import lives
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.spec import SandboxSpec
from rock_env.store.sqlite.records import SqliteStore

SPEC = SandboxSpec()


@pytest.fixture
async def backend(tmp_path: Path) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(root=tmp_path / "backend")
    yield made
    await made.close()


def stop_zygote(backend: ProcessBackend) -> int:
    assert backend._ready is not None
    stopped = backend._ready.launcher.pid
    os.kill(stopped, signal.SIGSTOP)
    return stopped


async def says(box: ProcessBox, word: str) -> bool:
    return (await box.exec(["echo", word])).stdout.decode() == f"{word}\n"


async def test_a_box_is_made_by_another_zygote_where_the_first_stands_still(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await backend.create(SPEC, sandbox_id="first")
    stopped = stop_zygote(backend)
    monkeypatch.setattr(launcher, "ORDER_S", 0.5)
    second = await backend.create(SPEC, sandbox_id="second")
    assert backend._ready is not None
    assert backend._ready.launcher.pid != stopped
    assert await says(first, "the first goes on")
    assert await says(second, "so does the second")


async def test_a_box_that_two_zygotes_did_not_make_fails_by_name(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.isolation()
    start = launcher.Launcher.start

    async def started_and_stopped(plan: dict[str, object]) -> launcher.Launcher:
        made = await start(plan)
        os.kill(made.pid, signal.SIGSTOP)
        return made

    stop_zygote(backend)
    with monkeypatch.context() as patched:
        patched.setattr(launcher, "ORDER_S", 0.5)
        patched.setattr(launcher.Launcher, "start", started_and_stopped)
        with pytest.raises(InfraError, match=r"did not carry out an order within 0\.5 s"):
            await backend.create(SPEC, sandbox_id="late")
    assert not await backend.census()
    assert await says(await backend.create(SPEC, sandbox_id="late"), "here")


async def test_a_copy_that_does_not_begin_fails_by_name_and_the_box_goes_on(
    backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await backend.create(SPEC, sandbox_id="box")
    stop_zygote(backend)
    monkeypatch.setattr(launcher, "ORDER_S", 0.5)
    with pytest.raises(launcher.ZygoteLost, match=r"within 0\.5 s"):
        await backend.snapshot("box", snapshot_id="snap")
    assert await says(box, "not paused any more")
    assert await backend.snapshot("box", snapshot_id="snap") >= 0


async def test_delete_ends_a_start_that_waits_for_a_zygote(
    backend: ProcessBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.isolation()
    async with await SqliteStore.open(tmp_path / "rock.db") as store, SandboxCore(backend, store) as core:
        stop_zygote(backend)
        monkeypatch.setattr(launcher, "ORDER_S", 2.0)
        making = asyncio.create_task(core.create(SandboxWish(spec=SPEC, lease_s=60.0)))
        async with aclosing(core.watch({}, after_revision=0)) as changes:
            record = await anext(changes)
        assert record.state is SandboxState.STARTING
        assert (await core.delete(record.id)).state is SandboxState.DELETED
        with pytest.raises(FailedPrecondition, match="ended while it was being made: deleted by its user"):
            await making
        assert not core.ledger.held
        assert (await core.create(SandboxWish(spec=SPEC))).state is SandboxState.RUNNING


async def test_no_start_lasts_much_longer_than_its_lease(
    backend: ProcessBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await backend.isolation()
    async with await SqliteStore.open(tmp_path / "rock.db") as store, SandboxCore(backend, store) as core:
        stop_zygote(backend)
        monkeypatch.setattr(launcher, "ORDER_S", 4.0)
        monkeypatch.setattr(lives, "NODE_GRACE_S", 0.2)
        monkeypatch.setattr(lives, "_START_GRACE_S", 0.2)
        with pytest.raises(InfraError, match=r"creating sandbox .* took longer than"):
            await core.create(SandboxWish(spec=SPEC, lease_s=0.2))
        assert not core.ledger.held


async def test_a_command_in_a_frozen_box_ends_at_its_own_limit_and_says_so(backend: ProcessBackend) -> None:
    box = await backend.create(SPEC, sandbox_id="box")
    os.kill(box.pid, signal.SIGSTOP)
    end = await box.exec(["sleep", "60"], timeout_s=2.0)
    assert end.infra_error == "the sandbox's guest does not answer, and the command's limit of 2 s is over"
    assert not end.timed_out
    assert not box.failure, "it may come back"
    os.kill(box.pid, signal.SIGCONT)
    assert await says(box, "back")


async def test_a_limit_in_a_box_whose_guest_answers_is_the_guests(backend: ProcessBackend) -> None:
    box = await backend.create(SPEC, sandbox_id="box")
    async with box.start(["sleep", "60"], timeout_s=0.5) as command:
        await box.pause()
        await asyncio.sleep(2.0)  # the limit does not count meanwhile, and the question is answered
        await box.resume()
        (end,) = [event async for event in command.events()]
    assert isinstance(end, CommandEnd)
    assert end.timed_out
    assert not end.infra_error


async def test_a_frozen_box_can_be_closed(backend: ProcessBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    box = await backend.create(SPEC, sandbox_id="box")
    os.kill(box.pid, signal.SIGSTOP)
    monkeypatch.setattr(link, "KILL_GRACE_S", 0.2)
    await box.close()
    assert not await backend.census()


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def freezer() -> Iterator[Path]:
    group = FREEZER / f"rock-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs a freezer of control groups version 1 at {FREEZER}: {error}")
    yield group
    (group / "freezer.state").write_text("THAWED")
    left = (group / "cgroup.procs").read_text().split()
    for pid in left:
        os.kill(int(pid), signal.SIGKILL)
    group.rmdir()
    assert not left


async def test_a_box_that_somebody_froze_ends(
    backend: ProcessBackend, freezer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await backend.create(SPEC, sandbox_id="frozen")
    await box.start_process(["sleep", "600"])
    assert backend._ready is not None
    for pid in {box.pid, *backend._ready.state.group_processes("frozen")}:
        (freezer / "cgroup.procs").write_text(str(pid))
    (freezer / "freezer.state").write_text("FROZEN")
    monkeypatch.setattr(link, "KILL_GRACE_S", 0.2)
    monkeypatch.setattr(launcher, "END_S", 2.0)
    await backend.destroy("frozen")
    assert await backend.census() == {}
