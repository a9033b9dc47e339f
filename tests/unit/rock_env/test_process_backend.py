"""What only the process backend has: its fence, its fallback, streamed commands and its clean-up."""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import logging
import os
import re
import shutil
import signal
import tomllib
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Literal

import pytest

import rock_env
from rock_env.backends.bubblewrap import Bubblewrap
from rock_env.backends.guest_link import CommandEnd, OutputChunk
from rock_env.backends.process import ProcessBackend, ProcessSandbox
from rock_env.backends.toolkit import Toolkit
from rock_env.errors import InfraError, InvalidArgument
from rock_env.spec import Resources, SandboxSpec

PACKAGES = Path(rock_env.__file__).resolve().parents[1]


@cache
def why_not_isolated() -> str:
    found = Bubblewrap.find()
    return found if isinstance(found, str) else asyncio.run(found.check())


@pytest.fixture
def isolation() -> Literal["bubblewrap", "none"]:
    return "none" if why_not_isolated() else "bubblewrap"


@pytest.fixture
def _needs_bubblewrap(isolation: str) -> None:
    if isolation == "none":
        pytest.skip(f"no isolation here: {why_not_isolated()}")


@pytest.fixture
async def backend(tmp_path: Path, isolation: Literal["bubblewrap", "none"]) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(root=tmp_path, isolation=isolation)
    yield made
    await made.close()


@pytest.fixture
async def box(backend: ProcessBackend) -> ProcessSandbox:
    return await backend.create(SandboxSpec(resources=Resources(pids=40)), sandbox_id="box")


async def out(box: ProcessSandbox, script: str) -> str:
    result = await box.exec(["bash", "-c", script])
    assert not result.infra_error
    return (result.stdout + result.stderr).decode()


@pytest.mark.usefixtures("_needs_bubblewrap")
class TestTheFence:
    async def test_every_namespace_is_the_boxs_own(self, box: ProcessSandbox) -> None:
        names = ["pid", "mnt", "net", "user", "ipc", "uts"]
        inside = (await out(box, f"cd /proc/self/ns; readlink {' '.join(names)}")).split()
        host = [os.readlink(f"/proc/self/ns/{name}") for name in names]  # noqa: PTH115
        assert len(inside) == len(names)
        assert not set(inside) & set(host)

    async def test_the_user_is_nobody_in_particular(self, box: ProcessSandbox) -> None:
        assert await out(box, "id -u; id -G; whoami") == "1000\n1000\nagent\n"
        status = await out(box, "grep -E 'CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs' /proc/self/status")
        assert sorted(set(status.split()[1::2])) == ["0000000000000000", "1"]

    async def test_only_the_box_can_be_written(self, box: ProcessSandbox) -> None:
        for place in ("/", "/usr", "/etc", "/opt/rock", "/home", "/root"):
            assert "cannot touch" in await out(box, f"touch {place}/x"), place
        assert await out(box, "touch /tmp/x ~/x x /dev/shm/x") == ""

    async def test_the_hosts_files_are_not_there(self, box: ProcessSandbox) -> None:
        seen = await out(box, "ls -A / /etc /root /home /opt 2>&1")
        assert "shadow" not in seen
        assert not {"var", "srv", "mnt", "boot", "sys", "run"} & set(seen.split())
        assert "No such file" in await out(box, f"ls {PACKAGES}/sandboxes")
        assert "No module named" in await out(box, "python -c 'import sandboxes'")
        assert "No module named" in await out(box, "python -c 'import grpc'")

    async def test_there_is_no_network(self, box: ProcessSandbox) -> None:
        assert await out(box, "cut -d: -f1 -s /proc/net/dev | tr -d ' '") == "lo\n"

    async def test_a_fork_bomb_stops_at_the_limit(self, box: ProcessSandbox) -> None:
        bomb = "import os, time\ntry:\n while os.fork(): pass\n time.sleep(600)\nexcept BlockingIOError: print('full')"
        assert await out(box, f'python -c "{bomb}"') == "full\n"
        await box.kill_all()
        assert await out(box, "echo still there") == "still there\n"

    async def test_the_guest_cannot_be_harmed_from_inside(self, box: ProcessSandbox) -> None:
        said = await out(
            box, "for n in INT TERM HUP KILL STOP SEGV; do kill -$n 1; done; cat /proc/1/environ /proc/1/mem"
        )
        assert said.count("Permission denied") == 2
        assert await out(box, "echo alive") == "alive\n"

    async def test_only_the_boxs_processes_are_seen(self, box: ProcessSandbox) -> None:
        assert int(await out(box, "ls -d /proc/[0-9]* | wc -l")) < 6

    async def test_what_it_reports(self, backend: ProcessBackend, box: ProcessSandbox) -> None:
        assert await backend.isolation() == box.isolation == "bubblewrap"


async def test_without_bubblewrap_it_says_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    backend = ProcessBackend(root=tmp_path)
    with caplog.at_level(logging.WARNING):
        box = await backend.create(SandboxSpec(), sandbox_id="one")
        await backend.create(SandboxSpec(), sandbox_id="two")
    assert box.isolation == await backend.isolation() == "none"
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "bwrap" in caplog.text
    assert "Install bubblewrap" in caplog.text
    assert await out(box, "echo works") == "works\n"
    await backend.close()


async def test_isolation_can_be_demanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(InfraError, match=r"bwrap.*Install bubblewrap"):
        await ProcessBackend(root=tmp_path, isolation="bubblewrap").create(SandboxSpec(), sandbox_id="one")


async def test_a_bubblewrap_that_fails_in_silence_is_not_usable() -> None:
    false = Bubblewrap(bwrap="/bin/false", setpriv="/bin/false", unshare="/bin/false")
    assert await false.check() == "/bin/false ended with status 1"


async def test_a_box_that_does_not_come_up_is_an_infra_error(backend: ProcessBackend, tmp_path: Path) -> None:
    await backend.create(SandboxSpec(), sandbox_id="first")
    for root in os.listdir(tmp_path):  # noqa: PTH208
        await asyncio.to_thread(shutil.rmtree, tmp_path / root / ".tools")
    with pytest.raises(InfraError, match=r"(?s)ended with status.*No such file"):
        await backend.create(SandboxSpec(), sandbox_id="second")
    assert "second" not in {name for _, names, _ in os.walk(tmp_path) for name in names}


async def test_pytest_runs_in_the_box(box: ProcessSandbox) -> None:
    await box.write_file("test_it.py", b"def test_it():\n    assert True\n")
    assert "1 passed" in await out(box, "python -I -m pytest -q -p no:cacheprovider test_it.py")


async def test_input_and_output_flow_while_a_command_runs(box: ProcessSandbox) -> None:
    async with box.start(["bash", "-c", "while read line; do echo got $line; done; exit 4"]) as command:
        events = aiter(command.events())
        for word in ("one", "two"):
            command.write_stdin(f"{word}\n".encode())
            assert await anext(events) == OutputChunk("stdout", f"got {word}\n".encode())
        command.close_stdin()
        end = await anext(events)
        assert isinstance(end, CommandEnd)
        assert (end.exit_code, end.signal) == (4, None)


async def test_a_signal_reaches_the_command(box: ProcessSandbox) -> None:
    async with box.start(
        ["bash", "-c", "trap 'echo caught; exit 5' USR1; echo up; while :; do read -t 1; done"]
    ) as command:
        events = aiter(command.events())
        assert await anext(events) == OutputChunk("stdout", b"up\n")
        command.kill(signal.SIGUSR1)
        assert await anext(events) == OutputChunk("stdout", b"caught\n")
        end = await anext(events)
        assert isinstance(end, CommandEnd)
        assert end.exit_code == 5


async def test_kill_all_ends_commands_and_what_they_left(box: ProcessSandbox) -> None:
    await box.exec(["bash", "-c", "setsid -f sleep 600"])
    task = asyncio.create_task(box.exec(["sleep", "600"], timeout_s=600))
    await box.exec(["true"])
    await box.kill_all()
    assert (await task).signal == signal.SIGKILL
    assert await out(box, "pgrep -c sleep || true") in ("0\n", "") or box.isolation == "none"


async def test_files_are_described(box: ProcessSandbox) -> None:
    await box.write_file("folder/file", b"12345", mode=0o640)
    await box.exec(["ln", "-s", "/etc", "folder/link"])
    listed = {entry.path: entry for entry in await box.list_files(".", recursive=True)}
    assert sorted(listed) == ["folder", "folder/file", "folder/link"]
    assert listed["folder/file"].size == 5
    assert listed["folder/file"].mode & 0o777 == 0o640
    assert listed["folder/link"].symlink_target == "/etc"
    assert [entry.path for entry in await box.list_files(".")] == ["folder"]
    assert (await box.stat("folder/link")).symlink_target == "/etc", "described, not followed"
    with pytest.raises(InvalidArgument):
        await box.list_files("folder/link")
    with pytest.raises(InvalidArgument):
        await box.stat("folder/link/passwd")


async def test_parts_of_files_and_appending(box: ProcessSandbox) -> None:
    await box.write_file("log", b"01234")
    await box.write_file("log", b"56789", append=True)
    assert await box.read_range("log", offset=3, length=4) == b"3456"
    assert await box.read_range("log", offset=8, length=100) == b"89"
    await box.exec(["truncate", "-s", "65M", "huge"])
    with pytest.raises(InvalidArgument, match="larger than"):
        await box.read_file("huge")


async def test_locked_folders_are_removed_as_well(
    backend: ProcessBackend, box: ProcessSandbox, tmp_path: Path
) -> None:
    await box.exec(["bash", "-c", "mkdir -p a/b; touch a/b/c; chmod 0 a/b a"])
    await box.close()
    assert "box" not in {name for _, names, _ in os.walk(tmp_path) for name in names}


async def test_folders_of_killed_servers_are_removed(tmp_path: Path) -> None:
    dead, living, young = (tmp_path / f"rock-boxes-{name}" for name in ("dead", "living", "young"))
    for folder in (dead, living, young):
        (folder / "box").mkdir(parents=True)
        if folder is not young:
            os.utime(folder, (0, 0))
    lock = os.open(living, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    backend = ProcessBackend(root=tmp_path, isolation="none")
    await backend.create(SandboxSpec(), sandbox_id="one")
    await backend.close()
    os.close(lock)
    assert sorted(os.listdir(tmp_path)) == ["rock-boxes-living", "rock-boxes-young"]  # noqa: PTH208


def test_the_toolkit_holds_a_distribution_and_what_it_requires(tmp_path: Path) -> None:
    tools = Toolkit.build(tmp_path / "tools", ("pytest", "no-such-distribution"))
    names = {host.name for host, _ in tools.packages}
    assert {"pytest", "_pytest", "pluggy", "packaging", "iniconfig"} <= names
    assert not {"rock_env", "sandboxes", "grpc", "pytest_asyncio"} & names
    assert tools.guest.is_file()


def test_what_boxes_have_installed_comes_with_this_distribution() -> None:
    """Boxes get these packages from the Python that runs ROCK; without pytest nothing could be graded."""
    wanted = inspect.signature(ProcessBackend).parameters["python_packages"].default
    required = {
        re.match(r"[\w-]+", requirement).group()
        for requirement in tomllib.loads((PACKAGES / "pyproject.toml").read_text())["project"]["dependencies"]
    }
    assert "pytest" in wanted
    assert required.issuperset(wanted)
