"""What every installed sandbox backend promises: one suite, on real processes.

Docker's boxes and pods need an image: `tests/integration/docker` and `kubernetes` hold these to the same promises.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
from fences import why_not_isolated
from processes import below

from rock_env.backends.base import Backend, Isolation
from rock_env.backends.plugin import BackendPlace, choose_backends
from rock_env.backends.process.backend import ProcessBackend
from rock_env.errors import InvalidArgument, NotFound, Unimplemented
from rock_env.plugins import names
from rock_env.sandbox import Sandbox
from rock_env.spec import NetworkPolicy, Resources, SandboxSpec


def installed(name: str) -> Callable[[Path], Backend]:
    """Return what makes the backend of an entry point with its default options."""
    return lambda root: choose_backends([name])[0].build(BackendPlace(root=root))


BACKENDS: dict[str, Callable[[Path], Backend]] = {
    **{name: installed(name) for name in names("ale.backends") if name not in ("docker", "kubernetes")},
    "process": lambda root: ProcessBackend(root=root, isolation="namespaces"),
    "process-bare": lambda root: ProcessBackend(root=root, isolation="none"),
}
MARK = f"a-mark-no-other-process-carries-{os.getpid()}-"  # tests run in several processes


def sh(script: str) -> list[str]:
    return ["bash", "-c", script]


def processes_marked(mark: str) -> list[int]:
    """Return the pids, on this machine, whose command line holds `mark`."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or ())
        if mark in line and process.pid != os.getpid() and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


async def appears(mark: str) -> None:
    for _ in range(1500):
        if processes_marked(mark):
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"no process {mark} after 30 s")


async def vanishes(mark: str) -> None:
    for _ in range(1500):
        if not processes_marked(mark):
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"process {mark} still there after 30 s")


@pytest.fixture(params=sorted(BACKENDS))
def make_backend(request: pytest.FixtureRequest) -> Callable[[Path], Backend]:
    if request.param == "process" and why_not_isolated():
        pytest.skip(f"no isolation here: {why_not_isolated()}")
    return BACKENDS[request.param]


@pytest.fixture
async def backend(make_backend: Callable[[Path], Backend], tmp_path: Path) -> AsyncIterator[Backend]:
    children = below()
    made = make_backend(tmp_path)
    yield made
    await made.close()
    assert os.listdir(tmp_path) == [], "a closed backend leaves nothing on disk"  # noqa: PTH208
    assert below() <= children, "nor a process, not even a zombie"


@pytest.fixture
async def box(backend: Backend) -> AsyncIterator[Sandbox]:
    made = await backend.create(SandboxSpec(), sandbox_id="box-1")
    yield made
    await made.close()


async def test_exit_codes_and_signals_are_told_apart(box: Sandbox) -> None:
    assert (await box.exec(["true"])).ok
    failed = await box.exec(sh("echo out; echo err >&2; exit 3"))
    assert (failed.exit_code, failed.signal, failed.stdout, failed.stderr) == (3, None, b"out\n", b"err\n")
    killed = await box.exec(sh("kill -SEGV $$"))
    assert (killed.exit_code, killed.signal, killed.timed_out) == (None, 11, False)
    as_a_shell_says = await box.exec(sh("exit 139"))
    assert (as_a_shell_says.exit_code, as_a_shell_says.signal) == (139, None)


async def test_a_program_that_cannot_run_is_no_infrastructure_error(box: Sandbox) -> None:
    missing = await box.exec(["no-such-program"])
    assert (missing.exit_code, missing.infra_error) == (127, "")
    assert b"no-such-program" in missing.stderr
    await box.write_file("data", b"not a program", mode=0o644)
    assert (await box.exec(["./data"])).exit_code == 126
    assert (await box.exec(["true"], cwd="nowhere")).exit_code == 127


@pytest.mark.parametrize("argv", [[], ["echo", "a\0b"]])
async def test_a_bad_command_line_is_refused(box: Sandbox, argv: list[str]) -> None:
    with pytest.raises(InvalidArgument, match="argv"):
        await box.exec(argv)


async def test_stdin_arrives_whole_and_ends(box: Sandbox) -> None:
    data = os.urandom(3 << 20)
    result = await box.exec(["cat"], stdin=data, max_output_bytes=4 << 20)
    assert result.stdout == data
    assert not result.truncated
    assert (await box.exec(["true"], stdin=data)).ok, "a command that reads nothing is not disturbed"


async def test_output_is_cut_exactly_and_said_so(box: Sandbox) -> None:
    result = await box.exec(sh("seq 100000; seq 5 >&2"), max_output_bytes=1000)
    whole = "".join(f"{number}\n" for number in range(1, 100001)).encode()
    assert (result.stdout, result.stderr, result.truncated) == (whole[:1000], b"1\n2\n3\n4\n5\n", True)
    exact = await box.exec(sh("printf 12345"), max_output_bytes=5)
    assert (exact.stdout, exact.truncated) == (b"12345", False)


async def test_a_timeout_kills_the_whole_group(box: Sandbox) -> None:
    result = await box.exec(sh(f"echo begun; (exec -a {MARK}1 sleep 600) & sleep 600"), timeout_s=0.5)
    assert (result.timed_out, result.exit_code, result.signal) == (True, None, 9)
    assert result.stdout == b"begun\n"
    assert (await box.exec(["true"])).ok
    assert not processes_marked(f"{MARK}1")


async def test_cancelling_kills_the_group(box: Sandbox) -> None:
    task = asyncio.create_task(box.exec(sh(f"exec -a {MARK}2 sleep 600"), timeout_s=600))
    await appears(f"{MARK}2")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await box.exec(["true"])).ok
    assert not processes_marked(f"{MARK}2")


async def test_a_background_process_does_not_hold_the_command(box: Sandbox) -> None:
    result = await box.exec(sh(f"(exec -a {MARK}3 sleep 600) & echo done"), timeout_s=100)
    assert (result.exit_code, result.stdout, result.timed_out) == (0, b"done\n", False)
    assert processes_marked(f"{MARK}3"), "it lives on in its box"
    await box.close()
    assert not processes_marked(f"{MARK}3"), "and ends with it"


async def test_nothing_escapes_close(box: Sandbox) -> None:
    await box.exec(sh(f"setsid -f bash -c 'trap \"\" TERM HUP; exec -a {MARK}4 sleep 600'; sleep 0.1"))
    assert processes_marked(f"{MARK}4")
    await box.close()
    await box.close()
    assert not processes_marked(f"{MARK}4")
    for use in (box.exec(["true"]), box.read_file("x"), box.write_file("x", b"")):
        with pytest.raises(NotFound, match="closed"):
            await use


async def test_closing_ends_a_running_command(box: Sandbox) -> None:
    task = asyncio.create_task(box.exec(sh(f"exec -a {MARK}5 sleep 600"), timeout_s=600))
    await appears(f"{MARK}5")
    await box.close()
    result = await task
    assert (result.exit_code, result.signal) == (None, None)
    assert "closed" in result.infra_error


async def test_many_commands_run_at_once(box: Sandbox) -> None:
    results = await asyncio.gather(*(box.exec(sh(f"sleep 0.0{n % 9}; echo {n}")) for n in range(30)))
    assert [result.stdout for result in results] == [f"{n}\n".encode() for n in range(30)]


async def test_the_environment_is_clean(box: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_OF_THE_SERVER", "hunter2")
    result = await box.exec(["env"], env={"ASKED_FOR": "yes"})
    assert b"ASKED_FOR=yes" in result.stdout
    assert b"hunter2" not in result.stdout
    assert (
        b"hunter2"
        not in (await box.exec(sh("cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep ^A_SEC"))).stdout
    )


async def test_spec_environment_and_working_folder(backend: Backend) -> None:
    spec = SandboxSpec(env=(("COLOUR", "teal"),), workdir="/project")
    box = await backend.create(spec, sandbox_id="box-2")
    await box.write_file("/project/note.txt", b"here")
    result = await box.exec(sh('echo $COLOUR; cat note.txt; cd "$HOME" && touch mine'))
    assert (result.exit_code, result.stdout) == (0, b"teal\nhere")


async def test_files_round_trip(box: Sandbox) -> None:
    await box.write_file("deep/er/tool.sh", b"#!/bin/sh\necho ran\n", mode=0o755)
    assert (await box.exec(["deep/er/tool.sh"])).stdout == b"ran\n"
    await box.write_file("deep/er/tool.sh", b"\x00\xff")
    assert await box.read_file("/workspace/deep/er/tool.sh") == b"\x00\xff"
    assert (await box.exec(sh("cd deep/er && ls -A"))).stdout == b"tool.sh\n", "nothing is left beside it"
    with pytest.raises(NotFound):
        await box.read_file("deep/nothing")
    with pytest.raises(InvalidArgument, match="regular file"):
        await box.read_file("deep")
    with pytest.raises(InvalidArgument, match="folder"):
        await box.write_file("deep", b"")


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", "a/../../../etc/passwd", "", "link/passwd", "direct"]
)
async def test_no_path_leads_out_of_the_box(box: Sandbox, path: str) -> None:
    await box.exec(sh("ln -s /etc link; ln -s /etc/passwd direct"))
    with pytest.raises(InvalidArgument):
        await box.read_file(path)
    with pytest.raises(InvalidArgument):
        await box.write_file(path, b"owned")


async def test_a_named_pipe_does_not_stop_the_box(box: Sandbox) -> None:
    await box.exec(["mkfifo", "pipe"])
    with pytest.raises(InvalidArgument, match="regular file"):
        await box.read_file("pipe")


async def test_limits_hold(backend: Backend) -> None:
    resources = Resources(memory_bytes=256 << 20, disk_bytes=1 << 20)
    box = await backend.create(SandboxSpec(resources=resources), sandbox_id="box-3")
    memory = await box.exec(["python3", "-c", "b'x' * (512 << 20)"])
    killed = (memory.signal, memory.oom_killed) == (9, True)
    assert killed or b"MemoryError" in memory.stderr, (
        "the box's limit, or each process's where boxes have none"
    )
    disk = await box.exec(sh("exec head -c 5M /dev/zero > big"))
    assert (disk.exit_code, disk.signal) == (None, 25), "SIGXFSZ"
    assert (await box.exec(sh("ulimit -n"))).stdout == b"1024\n"


async def test_boxes_do_not_share_files(backend: Backend) -> None:
    one = await backend.create(SandboxSpec(), sandbox_id="one")
    two = await backend.create(SandboxSpec(), sandbox_id="two")
    await one.write_file("mine", b"1")
    with pytest.raises(NotFound):
        await two.read_file("mine")
    assert one.id == "one"


async def test_a_spec_that_cannot_be_honoured_is_refused(backend: Backend) -> None:
    spec = SandboxSpec(image="debian")
    if not backend.hosts(spec):
        with pytest.raises(Unimplemented, match="docker"):
            await backend.create(spec, sandbox_id="no")


@pytest.mark.parametrize("isolation", ["namespaces", "none"])
async def test_process_boxes_refuse_images_network_and_folders_of_the_system(
    isolation: Isolation, tmp_path: Path
) -> None:
    backend = ProcessBackend(root=tmp_path, isolation=isolation)
    for spec in (SandboxSpec(image="debian"), SandboxSpec(network=NetworkPolicy(enabled=True))):
        with pytest.raises(Unimplemented, match="docker"):
            await backend.create(spec, sandbox_id="no")
    for workdir in ("workspace", "/usr", "/a/b", "/..", "/"):
        with pytest.raises(InvalidArgument, match=re.escape(repr(workdir))):
            await backend.create(SandboxSpec(workdir=workdir), sandbox_id="no")
    await backend.close()


async def test_an_id_is_used_once(backend: Backend) -> None:
    box = await backend.create(SandboxSpec(), sandbox_id="same")
    with pytest.raises(InvalidArgument, match="same"):
        await backend.create(SandboxSpec(), sandbox_id="same")
    await box.close()
    await backend.create(SandboxSpec(), sandbox_id="same")


async def test_closing_the_backend_closes_its_boxes(backend: Backend) -> None:
    box = await backend.create(SandboxSpec(), sandbox_id="left-open")
    await box.exec(sh(f"(exec -a {MARK}6 sleep 600) & :"))
    await backend.close()
    await backend.close()
    assert not processes_marked(f"{MARK}6")
    with pytest.raises(NotFound):
        await box.exec(["true"])
    with pytest.raises(NotFound):
        await backend.create(SandboxSpec(), sandbox_id="late")


async def test_a_box_whose_holder_is_killed_says_so(backend: Backend) -> None:
    box = await backend.create(SandboxSpec(), sandbox_id="doomed")
    assert isinstance(box.pid, int)  # type: ignore[attr-defined]
    task = asyncio.create_task(box.exec(sh(f"exec -a {MARK}7 sleep 600"), timeout_s=600))
    await appears(f"{MARK}7")
    psutil.Process(box.pid).kill()  # type: ignore[attr-defined]
    result = await task
    assert (result.exit_code, result.ok) == (None, False)
    assert ("status -9" if isinstance(backend, ProcessBackend) else "ended") in result.infra_error
    await box.close()
    await vanishes(f"{MARK}7")  # without a namespace of its own, the parent's death kills it, but not at once


OWNER = """
import asyncio, sys
from pathlib import Path
from rock_env.backends.process.backend import ProcessBackend, why_not_fenced
from rock_env.spec import SandboxSpec

async def main():
    backend = ProcessBackend(root=Path(sys.argv[1]), isolation=sys.argv[2])
    box = await backend.create(SandboxSpec(), sandbox_id="box")
    await box.exec(["bash", "-c", "setsid -f bash -c 'exec -a " + sys.argv[3] + " sleep 600'"])
    await box.exec(["bash", "-c", "exec -a " + sys.argv[3] + " sleep 600"], timeout_s=600)

asyncio.run(main())
"""


@pytest.mark.parametrize("isolation", ["namespaces", "none"])
async def test_killing_the_server_ends_its_boxes(isolation: str, tmp_path: Path) -> None:
    if isolation == "namespaces" and why_not_isolated():
        pytest.skip(f"no isolation here: {why_not_isolated()}")
    mark = f"{MARK}8-{isolation}"
    owner = await asyncio.create_subprocess_exec(sys.executable, "-c", OWNER, str(tmp_path), isolation, mark)
    for _ in range(1500):
        if len([pid for pid in processes_marked(mark) if pid != owner.pid]) >= 2:
            break
        await asyncio.sleep(0.02)
    owner.kill()
    await owner.wait()
    for _ in range(1500):
        if not processes_marked(mark):
            break
        await asyncio.sleep(0.02)
    assert not processes_marked(mark)
