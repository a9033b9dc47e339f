"""What only the process backend has: its fence, its fallback, streamed commands and its clean-up."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import platform
import re
import shutil
import signal
import tomllib
from collections.abc import AsyncIterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Literal

import psutil
import pytest
from fences import why_not_isolated
from processes import below, name_of

import rock_env
from rock_env.backends.process import toolkit
from rock_env.backends.process.backend import ProcessBackend, ProcessBox, why_not_fenced
from rock_env.backends.process.toolkit import Toolkit
from rock_env.errors import InfraError, InvalidArgument
from rock_env.sandbox import CommandEnd, OutputChunk
from rock_env.spec import Resources, SandboxSpec

PACKAGES = Path(rock_env.__file__).resolve().parents[1]


@pytest.fixture
def isolation() -> Literal["namespaces", "none"]:
    return "none" if why_not_isolated() else "namespaces"


@pytest.fixture
def _needs_a_fence(isolation: str) -> None:
    if isolation == "none":
        pytest.skip(f"no isolation here: {why_not_isolated()}")


@pytest.fixture
async def backend(tmp_path: Path, isolation: Literal["namespaces", "none"]) -> AsyncIterator[ProcessBackend]:
    made = ProcessBackend(root=tmp_path, isolation=isolation)
    yield made
    await made.close()


@pytest.fixture
async def box(backend: ProcessBackend) -> ProcessBox:
    return await backend.create(SandboxSpec(resources=Resources(pids=40)), sandbox_id="box")


async def out(box: ProcessBox, script: str) -> str:
    result = await box.exec(["bash", "-c", script])
    assert not result.infra_error
    return (result.stdout + result.stderr).decode()


@pytest.mark.usefixtures("_needs_a_fence")
class TestTheFence:
    async def test_every_namespace_is_the_boxs_own(self, box: ProcessBox) -> None:
        names = ["pid", "mnt", "net", "user", "ipc", "uts"]
        inside = (await out(box, f"cd /proc/self/ns; readlink {' '.join(names)}")).split()
        host = [os.readlink(f"/proc/self/ns/{name}") for name in names]  # noqa: PTH115
        assert len(inside) == len(names)
        assert not set(inside) & set(host)

    async def test_the_user_is_nobody_in_particular(self, box: ProcessBox) -> None:
        assert await out(box, "id -u; id -G; whoami") == "1000\n1000\nagent\n"
        status = await out(box, "grep -E 'CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs' /proc/self/status")
        assert sorted(set(status.split()[1::2])) == ["0000000000000000", "1"]

    async def test_only_the_box_can_be_written(self, box: ProcessBox) -> None:
        for place in ("/", "/usr", "/etc", "/opt/rock", "/home", "/root"):
            assert "cannot touch" in await out(box, f"touch {place}/x"), place
        assert await out(box, "touch /tmp/x ~/x x /dev/shm/x") == ""

    async def test_the_hosts_files_are_not_there(self, box: ProcessBox) -> None:
        seen = await out(box, "ls -A / /etc /root /home /opt 2>&1")
        assert "shadow" not in seen
        assert not {"var", "srv", "mnt", "boot", "sys", "run"} & set(seen.split())
        assert "No such file" in await out(box, f"ls {PACKAGES}/sandboxes")
        for module in (
            "sandboxes.swe",
            "sandboxes.browser.env",
            "sandboxes.browser.families",
            "rock_env",
            "grpc",
        ):
            assert "No module named" in await out(box, f"python -c 'import {module}'")

    async def test_there_is_no_network(self, box: ProcessBox) -> None:
        assert await out(box, "cut -d: -f1 -s /proc/net/dev | tr -d ' '") == "lo\n"

    async def test_a_fork_bomb_stops_at_the_limit(self, box: ProcessBox) -> None:
        bomb = "import os, time\ntry:\n while os.fork(): pass\n time.sleep(600)\nexcept BlockingIOError: print('full')"
        assert await out(box, f'python -c "{bomb}"') == "full\n"
        await box.kill_all()
        assert await out(box, "echo still there") == "still there\n"

    async def test_the_guest_cannot_be_harmed_from_inside(self, box: ProcessBox) -> None:
        said = await out(
            box, "for n in INT TERM HUP KILL STOP SEGV; do kill -$n 1; done; cat /proc/1/environ /proc/1/mem"
        )
        assert said.count("Permission denied") == 2
        assert await out(box, "echo alive") == "alive\n"

    async def test_only_the_boxs_processes_are_seen(self, box: ProcessBox) -> None:
        assert int(await out(box, "ls -d /proc/[0-9]* | wc -l")) < 6

    async def test_no_system_folder_is_shared_for_writing(self, box: ProcessBox) -> None:
        mounts = [line.split() for line in (await out(box, "cat /proc/self/mounts")).splitlines()]
        writable = {
            point for _, point, kind, options, *_ in mounts if options.startswith("rw") and kind != "devtmpfs"
        }
        assert writable == {"/workspace", "/home/agent", "/tmp", "/dev/shm", "/dev/pts", "/proc"}
        devices = {point for _, point, kind, *_ in mounts if kind == "devtmpfs"}
        assert {point for point in devices if not point.startswith("/proc/")} == {
            f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")
        }

    async def test_the_kernel_cannot_be_steered_from_inside(self, box: ProcessBox) -> None:
        for file in ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/1/oom_score_adj"):
            assert "Permission denied" in await out(box, f"echo 1 > {file}"), file
        for file in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/sysrq-trigger"):
            assert await out(box, f"{{ head -c 10 {file}; echo h > {file}; }} 2>/dev/null") == "", file

    async def test_no_way_out_by_mounts_devices_or_handles(self, box: ProcessBox) -> None:
        assert "not permitted" in await out(box, "mknod disk b 254 0; mknod mem c 1 1")
        assert "not permitted" in await out(box, "unshare -r true")
        assert "mount" in await out(box, "mount -t tmpfs x /tmp || mount --bind / /tmp")
        assert await out(
            box, "ls -A /proc/self/root/proc/1/root 2>&1 | head -c 1; ls /proc/1/fd 2>&1 | tail -c 18"
        ) in ("lPermission denied\n",)
        names = "import os; print(sorted(os.listdir('/proc/self/fd')))"
        assert await out(box, f'python3 -c "{names}"') == "['0', '1', '2', '3']\n", (
            "the last is the listing's own"
        )

    async def test_privileges_do_not_come_back(self, box: ProcessBox) -> None:
        assert await out(box, "cp /usr/bin/id mine && chmod 6777 mine && ./mine -u") == "1000\n"
        said = await out(box, "chown 0:0 mine; python3 -c 'import os; os.setuid(0)'")
        assert said.count("Invalid argument") == 2, "there is no root in the box's user namespace"
        assert (
            await out(box, "grep -c . /proc/self/uid_map; awk '{print $1, $3}' /proc/self/uid_map")
            == "1\n1000 1\n"
        )

    async def test_terminals_are_the_boxs_own(self, box: ProcessBox) -> None:
        script = "import os, pty\nprint(os.ttyname(os.openpty()[1]), os.listdir('/dev/pts'))"
        assert await out(box, f'python3 -c "{script}"') == "/dev/pts/0 ['0', 'ptmx']\n"

    async def test_what_it_reports(self, backend: ProcessBackend, box: ProcessBox) -> None:
        assert await backend.isolation() == box.isolation == "namespaces"


async def test_without_a_fence_it_says_what_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")  # for which there is no filter
    backend = ProcessBackend(root=tmp_path)
    with caplog.at_level(logging.WARNING):
        box = await backend.create(SandboxSpec(), sandbox_id="one")
        await backend.create(SandboxSpec(), sandbox_id="two")
    assert box.isolation == await backend.isolation() == "none"
    warnings = [
        record.getMessage() for record in caplog.records if "WITHOUT isolation" in record.getMessage()
    ]
    assert len(warnings) == 1
    assert "no system call filter for riscv64" in warnings[0]
    assert "run the server as root" in warnings[0]
    assert await out(box, "echo works") == "works\n"
    await backend.close()


async def test_isolation_can_be_demanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    backend = ProcessBackend(root=tmp_path, isolation="namespaces")
    with pytest.raises(InfraError, match=r"riscv64.*Allow user namespaces"):
        await backend.create(SandboxSpec(), sandbox_id="one")
    assert "riscv64" in await why_not_fenced()
    await backend.close()
    assert os.listdir(tmp_path) == []  # noqa: PTH208


async def test_a_box_that_does_not_come_up_is_an_infra_error(backend: ProcessBackend, tmp_path: Path) -> None:
    await backend.create(SandboxSpec(), sandbox_id="first")
    await backend.snapshot("first", snapshot_id="snap")
    await asyncio.to_thread(shutil.rmtree, tmp_path / "layers" / "snap" / "files")
    with pytest.raises(InfraError, match=r"No such file or directory"):
        await backend.create(SandboxSpec(), sandbox_id="second", snapshot="snap")
    assert set(await backend.census()) == {"first"}


async def test_a_paused_box_is_paused_after_its_snapshot(backend: ProcessBackend, box: ProcessBox) -> None:
    async with box.start(["bash", "-c", "while sleep 0.02; do echo; done"]) as command:
        await anext(aiter(command.events()))
        await box.pause()
        await backend.snapshot("box", snapshot_id="snap")
        pid = min(
            child.pid for child in below(psutil.Process(box.pid)) if name_of(child) == "bash"
        )  # it forks
        assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
        await box.resume()
        await backend.snapshot("box", snapshot_id="again")
        assert psutil.Process(pid).status() != psutil.STATUS_STOPPED


async def test_pytest_runs_in_the_box(box: ProcessBox) -> None:
    await box.write_file("test_it.py", b"def test_it():\n    assert True\n")
    assert "1 passed" in await out(box, "python -I -m pytest -q -p no:cacheprovider test_it.py")


async def test_input_and_output_flow_while_a_command_runs(box: ProcessBox) -> None:
    async with box.start(["bash", "-c", "while read line; do echo got $line; done; exit 4"]) as command:
        events = aiter(command.events())
        for word, offset in (("one", 0), ("two", 8)):
            command.write_stdin(f"{word}\n".encode())
            assert await anext(events) == OutputChunk("stdout", f"got {word}\n".encode(), offset)
        command.close_stdin()
        end = await anext(events)
        assert isinstance(end, CommandEnd)
        assert (end.exit_code, end.signal) == (4, None)


async def test_a_signal_reaches_the_command(box: ProcessBox) -> None:
    async with box.start(
        ["bash", "-c", "trap 'echo caught; exit 5' USR1; echo up; while :; do read -t 1; done"]
    ) as command:
        events = aiter(command.events())
        assert await anext(events) == OutputChunk("stdout", b"up\n")
        command.kill(signal.SIGUSR1)
        assert await anext(events) == OutputChunk("stdout", b"caught\n", 3)
        end = await anext(events)
        assert isinstance(end, CommandEnd)
        assert end.exit_code == 5


async def test_kill_all_ends_commands_and_what_they_left(box: ProcessBox) -> None:
    await box.exec(["bash", "-c", "setsid -f sleep 600"])
    task = asyncio.create_task(box.exec(["sleep", "600"], timeout_s=600))
    await box.exec(["true"])
    await box.kill_all()
    assert (await task).signal == signal.SIGKILL
    assert await out(box, "pgrep -c sleep || true") in ("0\n", "") or box.isolation == "none"


async def test_files_are_described(box: ProcessBox) -> None:
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


async def test_nobody_waits_for_the_list_of_a_huge_folder(box: ProcessBox) -> None:
    made = await box.exec(["bash", "-c", "mkdir many && cd many && seq 60000 | xargs touch"])
    assert made.ok, made.stderr
    listing = asyncio.create_task(box.list_files("many"))
    await asyncio.sleep(0)
    command = asyncio.create_task(box.exec(["true"]))
    done, _ = await asyncio.wait({listing, command}, return_when=asyncio.FIRST_COMPLETED)
    assert done == {command}
    listed = await listing
    assert (len(listed), listed[0].path, listed[-1].path) == (60_000, "1", "9999")
    made = await box.exec(["bash", "-c", "cd many && seq 60001 100001 | xargs touch"])
    with pytest.raises(InvalidArgument, match="more than 100000 entries"):
        await box.list_files("many")


async def test_parts_of_files_and_appending(box: ProcessBox) -> None:
    await box.write_file("log", b"01234")
    await box.write_file("log", b"56789", append=True)
    assert await box.read_range("log", offset=3, length=4) == b"3456"
    assert await box.read_range("log", offset=8, length=100) == b"89"
    await box.exec(["truncate", "-s", "65M", "huge"])
    with pytest.raises(InvalidArgument, match="larger than"):
        await box.read_file("huge")


def test_the_toolkit_holds_a_distribution_and_what_it_requires(tmp_path: Path) -> None:
    tools = Toolkit.build(tmp_path / "tools", ("pytest", "no-such-distribution"))
    names = {host.name for host, _ in tools.packages}
    assert {"pytest", "_pytest", "pluggy", "packaging", "iniconfig"} <= names
    assert not {"rock_env", "sandboxes", "grpc", "pytest_asyncio"} & names


def test_the_toolkit_shows_the_code_that_plugins_have_for_boxes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [
        EntryPoint("browser", value, toolkit.BOX_CODE) for value in ("sandboxes.browser.box", "no.such")
    ]
    monkeypatch.setattr(toolkit, "entry_points", lambda group: points)
    tools = Toolkit.build(tmp_path / "tools", ())
    ((place, point),) = tools.packages
    assert place == PACKAGES / "sandboxes/browser/box"
    assert point.endswith("/site-packages/sandboxes/browser/box")
    assert (tmp_path / "tools" / point).is_dir()
    assert tools.names == frozenset(), "nothing of it can be imported ahead"


def test_what_boxes_have_installed_comes_with_this_distribution() -> None:
    """Boxes get these packages from the Python that runs ROCK; without pytest nothing could be graded."""
    wanted = inspect.signature(ProcessBackend).parameters["python_packages"].default
    project = tomllib.loads((PACKAGES / "pyproject.toml").read_text())["project"]
    required = {
        re.match(r"[\w-]+", requirement).group()
        for requirement in project["dependencies"] + project["optional-dependencies"]["browser"]
    }
    assert "pytest" in wanted
    assert required.issuperset(wanted)
