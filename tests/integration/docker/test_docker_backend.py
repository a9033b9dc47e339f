"""What the docker backend promises beyond the contract suite, on a real engine: images, fences, lives and layers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from docker_engine import BUSYBOX, GVISOR, bundles, docker, engine, until  # noqa: F401  fixtures

from rock_env.backends.docker.backend import DockerBackend
from rock_env.errors import FailedPrecondition, InfraError, InvalidArgument
from rock_env.spec import Resources, SandboxSpec

SPEC = SandboxSpec(image=BUSYBOX)


def sh(script: str) -> list[str]:
    return ["sh", "-c", script]


@pytest.fixture
async def node(engine: None, bundles: Path, tmp_path: Path) -> AsyncIterator[Callable[[], DockerBackend]]:  # noqa: F811
    """Make servers of one state folder, one after another; whatever they leave is removed."""
    made: list[DockerBackend] = []

    def start() -> DockerBackend:
        made.append(DockerBackend(root=tmp_path / "state", bundles=bundles))
        return made[-1]

    yield start
    for old in made:
        await old.let_go()
    last = start()
    for sandbox_id in await last.census():
        await last.destroy(sandbox_id)
    while left := await last.snapshots():
        for snapshot_id in sorted(left, reverse=True):
            await last.delete_snapshot(snapshot_id)
    await last.close()
    assert not await asyncio.to_thread(docker, "ps", "-aq", "--filter", f"name={state_id(tmp_path)}")


def state_id(folder: Path) -> str:
    return (folder / "state" / "docker-id").read_text()


def imported(tmp_path: Path, *changes: str) -> str:
    """Make an image of no files at all; return its id."""
    archive = tmp_path / "empty.tar"
    with tarfile.open(archive, "w"):
        pass
    words = [word for change in changes for word in ("-c", change)]
    return docker("import", *words, str(archive))


async def test_an_image_without_a_single_file_is_a_box(backend: DockerBackend, tmp_path: Path) -> None:
    image = await asyncio.to_thread(imported, tmp_path)
    try:
        box = await backend.create(SandboxSpec(image=image), sandbox_id="empty")
        await box.write_file("deep/note", b"kept")
        assert await box.read_file("/workspace/deep/note") == b"kept"
        assert (await box.exec(["sh"])).exit_code == 127
        await box.close()
    finally:
        await asyncio.to_thread(docker, "rmi", image)


@pytest.mark.first
async def test_the_image_says_how_commands_run(backend: DockerBackend, tmp_path: Path) -> None:
    recipe = f"FROM {BUSYBOX}\nENV COLOUR=teal SIZE=m LD_PRELOAD=/none.so\nWORKDIR /srv/app\nUSER agent\n"
    (tmp_path / "Dockerfile").write_text(recipe)
    image = await asyncio.to_thread(docker, "build", "-q", str(tmp_path))
    try:
        asked = SandboxSpec(image=image, env=(("SIZE", "l"),))
        box = await backend.create(asked, sandbox_id="as-said")
        said = await box.exec(sh("echo $COLOUR $SIZE $HOME; id -un; pwd; env | grep -c LD_PRELOAD"))
        assert said.stdout == b"teal l /home/agent\nagent\n/srv/app\n1\n"
        other = await backend.create(SandboxSpec(image=image, workdir="/job/mine"), sandbox_id="own-folder")
        assert (await other.exec(sh("pwd; touch made && echo made"))).stdout == b"/job/mine\nmade\n"
        snapshot = await backend.snapshot("own-folder", snapshot_id="as-said-snap")
        assert snapshot >= 0
        again = await backend.create(asked, sandbox_id="again", snapshot="as-said-snap")
        assert (await again.exec(sh("id -un; echo $COLOUR; ls /job/mine"))).stdout == b"agent\nteal\nmade\n"
        for made in (box, other, again):
            await made.close()
        await backend.delete_snapshot("as-said-snap")
    finally:
        await asyncio.to_thread(docker, "rmi", image)


@pytest.mark.first
async def test_a_box_is_fenced_in(backend: DockerBackend) -> None:
    box = await backend.create(SPEC, sandbox_id="fenced")
    status = (await box.exec(sh("cat /proc/self/status"))).stdout.decode()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert {fields[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")
    assert (await box.exec(sh("ls /sys/class/net"))).stdout == b"lo\n"
    refused = {
        "echo x > /opt/rock/start.pyc": "Read-only",
        "echo x > /opt/rock/run/x": "",
        "echo x > /etc/hosts": "Read-only",
        "cat /proc/1/environ": "",
        "cat /proc/1/mem": "",
        "mount -t tmpfs none /tmp": "",
        "unshare -r true": "",
        "mknod /tmp/disk b 254 0": "",
        "echo 1 > /proc/sys/kernel/panic": "",
        "chown 1000 /tmp": "",
        "ls /var/run/docker.sock": "",
        "nc -w 1 169.254.169.254 80 </dev/null": "",
    }
    for script, reason in refused.items():
        result = await box.exec(sh(script))
        assert result.exit_code not in (0, None), script
        assert reason in result.stderr.decode(), script
    container = (await backend.census())["fenced"].split()[1]
    described = json.loads(await asyncio.to_thread(docker, "inspect", container))[0]
    assert described["HostConfig"]["Privileged"] is False
    assert {mount["RW"] for mount in described["Mounts"] if mount["Destination"] != "/opt/rock/run"} == {
        False
    }
    assert described["HostConfig"]["MemorySwap"] == described["HostConfig"]["Memory"]
    await box.close()


async def test_a_fork_bomb_stays_inside(backend: DockerBackend) -> None:
    spec = SandboxSpec(image=BUSYBOX, resources=Resources(pids=32))
    box = await backend.create(spec, sandbox_id="bomb")
    result = await box.exec(sh("b() { b | b & b; }; b"), timeout_s=2)
    assert result.exit_code != 0
    await box.kill_all()
    assert (await box.exec(sh("echo $((6 * 7))"))).stdout == b"42\n"
    await box.close()


async def test_a_box_beyond_its_disk_limit_is_ended_and_says_so(backend: DockerBackend) -> None:
    spec = SandboxSpec(image=BUSYBOX, resources=Resources(disk_bytes=32 << 20))
    box = await backend.create(spec, sandbox_id="full")
    small = await backend.create(SPEC, sandbox_id="small")
    script = "for n in $(seq 24); do dd if=/dev/zero of=f$n bs=1M count=8 2>/dev/null; done; sleep 60"
    result = await box.exec(sh(script), timeout_s=60)
    assert "its disk limit is 33554432" in result.infra_error
    assert "disk limit" in await box.lost()
    assert (await small.exec(["true"])).ok
    await box.close()
    await small.close()


async def test_a_box_with_too_many_files_is_ended_and_says_so(backend: DockerBackend) -> None:
    spec = SandboxSpec(image=BUSYBOX, resources=Resources(disk_bytes=8 << 20))
    box = await backend.create(spec, sandbox_id="many")
    script = "for n in $(seq 40); do mkdir d$n; (cd d$n; seq 200 | xargs touch); done; sleep 60"
    result = await box.exec(sh(script), timeout_s=60)
    assert "more than 2048 files" in result.infra_error
    await box.close()


async def test_io_uring_is_refused(backend: DockerBackend) -> None:
    """By the guest's own filter: the engine's leaves it open before version 25."""
    box = await backend.create(SPEC, sandbox_id="ring")
    script = "import ctypes, os; c = ctypes.CDLL(None, use_errno=True); "
    script += (
        "[print(c.syscall(n, 8, 0, 0, 0, 0, 0), os.strerror(ctypes.get_errno())) for n in (425, 426, 427)]"
    )
    python = ["/opt/rock/ld.so", "--library-path", "/opt/rock/lib", "/opt/rock/bin/python", "-I", "-S"]
    result = await box.exec([*python, "-c", script])
    assert result.stdout.decode().splitlines() == ["-1 Operation not permitted"] * 3, result
    await box.close()


async def test_a_lease_ends_the_box_on_the_node(backend: DockerBackend) -> None:
    box = await backend.create(SPEC, sandbox_id="leased", lease_s=60)
    await box.lease(0.2)
    assert "lease" in await box.lost()

    async def gone() -> bool:
        return "container" not in (await backend.census())["leased"]

    await until(gone)
    await box.close()
    assert not await backend.census()
    short = await backend.create(SandboxSpec(image=BUSYBOX, lifetime_s=0.3), sandbox_id="short")
    assert "lifetime" in await short.lost()
    await short.close()


async def test_a_removed_container_is_noticed(backend: DockerBackend) -> None:
    box = await backend.create(SPEC, sandbox_id="removed")
    task = asyncio.create_task(box.exec(["sleep", "600"], timeout_s=600))
    container = (await backend.census())["removed"].split()[1]
    await asyncio.to_thread(docker, "rm", "-f", container)
    assert "killed from outside" in (await task).infra_error
    with pytest.raises(InfraError, match="killed from outside"):
        await box.exec(["true"])
    await box.close()


OWNER = """
import asyncio, sys
from pathlib import Path
from rock_env.backends.docker.backend import DockerBackend
from rock_env.spec import SandboxSpec

async def main():
    root = Path(sys.argv[2]) if sys.argv[2] else None
    backend = DockerBackend(root=root, bundles=Path(sys.argv[1]))
    box = await backend.create(SandboxSpec(image=sys.argv[3]), sandbox_id="box", durable=root is not None)
    await box.write_file("note", b"from before")
    await box.exec(["sh", "-c", "(sleep 0.5; echo more >> note) >/dev/null 2>&1 &"])
    print((await backend.census())["box"].split()[1], flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def killed_server(bundles: Path, root: str) -> str:  # noqa: F811
    """Run a server that makes a box, and kill it; return the box's container."""
    argv = [sys.executable, "-c", OWNER, str(bundles), root, BUSYBOX]
    server = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    container = (await server.stdout.readline()).decode().strip()
    server.kill()
    await server.wait()
    return container


@pytest.mark.first
async def test_a_durable_box_outlives_its_server(
    node: Callable[[], DockerBackend],
    bundles: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    container = await killed_server(bundles, str(tmp_path / "state"))
    second = node()
    assert list(await second.census()) == ["box"]
    box = await second.adopt("box", spec=SPEC)
    assert box is not None

    async def went_on() -> bool:
        return await box.read_file("note") == b"from beforemore\n"

    await until(went_on)
    assert container in (await second.census())["box"]
    await second.let_go()
    third = node()
    again = await third.adopt("box", spec=SPEC)
    assert again is not None
    assert (await again.exec(["cat", "note"])).stdout == b"from beforemore\n"
    await asyncio.to_thread(docker, "rm", "-f", container)
    await third.let_go()
    fourth = node()
    assert await fourth.adopt("box", spec=SPEC) is None
    assert not await fourth.census()


def folders(where: Path) -> list[Path]:
    return list(where.glob("rock-docker-*"))


async def test_a_killed_server_without_a_folder_leaves_nothing(
    engine: None,  # noqa: F811
    bundles: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    container = await killed_server(bundles, "")

    async def gone() -> bool:
        return not await asyncio.to_thread(docker, "ps", "-aq", "--filter", f"id={container}")

    await until(gone)
    (left,) = folders(tmp_path)
    own = f"rock.server={(left / 'docker-id').read_text()}"
    never_started = await asyncio.to_thread(docker, "create", "--label", own, BUSYBOX, "true")
    os.utime(left, (time.time() - 3600,) * 2)
    later = DockerBackend(bundles=bundles)
    assert not await later.census()
    assert not left.exists()
    assert not await asyncio.to_thread(docker, "ps", "-aq", "--filter", f"id={never_started}")
    await later.close()
    assert not folders(tmp_path)


async def test_orphans_are_counted_and_destroyed(node: Callable[[], DockerBackend], tmp_path: Path) -> None:
    backend = node()
    assert not await backend.census()
    labels = [f"--label=rock.server={state_id(tmp_path)}", "--label=rock.sandbox=orphan"]
    name = f"rock-{state_id(tmp_path)}-orphan"
    await asyncio.to_thread(docker, "create", "--name", name, *labels, BUSYBOX, "true")
    assert "(created)" in (await backend.census())["orphan"]
    with pytest.raises(InfraError, match="orphan"):
        await backend.create(SPEC, sandbox_id="orphan")
    await backend.destroy("orphan")
    await backend.destroy("orphan")
    assert not await backend.census()


async def test_two_servers_do_not_share_a_folder(node: Callable[[], DockerBackend]) -> None:
    await node().census()
    with pytest.raises(FailedPrecondition, match="another server"):
        await node().census()


async def test_only_durable_boxes_are_let_go(node: Callable[[], DockerBackend]) -> None:
    backend = node()
    lasting = await backend.create(SPEC, sandbox_id="lasting", durable=True)
    await backend.create(SPEC, sandbox_id="passing")
    await backend.let_go()
    with pytest.raises(InfraError):
        await lasting.exec(["true"])
    assert list(await node().census()) == ["lasting"]


async def test_durable_needs_a_folder(backend: DockerBackend) -> None:
    with pytest.raises(InvalidArgument, match="--state"):
        await backend.create(SPEC, sandbox_id="no", durable=True)


async def test_gvisor_boxes_do_the_same(backend: DockerBackend) -> None:
    runtimes = json.loads(await asyncio.to_thread(docker, "info", "--format", "{{json .Runtimes}}"))
    if "runsc" not in runtimes:
        settings = json.dumps({"runtimes": {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": GVISOR}}})
        pytest.skip(
            f"this engine has no runtime runsc (Debian: apt-get install runsc; /etc/docker/daemon.json: {settings})"
        )
    box = await backend.create(SandboxSpec(image=BUSYBOX, runtime="runsc"), sandbox_id="gvisor")
    said = await box.exec(sh("dmesg | head -1; echo kept > file; pwd"))
    assert b"gVisor" in said.stdout
    assert said.stdout.endswith(b"/workspace\n")
    assert await backend.snapshot("gvisor", snapshot_id="gvisor-snap") > 0
    again = await backend.restore("gvisor", snapshot="gvisor-snap")
    assert await again.read_file("file") == b"kept\n"


@pytest.mark.parametrize("after_s", [0.0, 0.005, 0.02, 0.06, 0.1])
async def test_a_cancelled_create_leaves_nothing(backend: DockerBackend, after_s: float) -> None:
    await backend.census()
    task = asyncio.create_task(backend.create(SPEC, sandbox_id="unwanted"))
    await asyncio.sleep(after_s)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled():  # it was done before, on a machine that let us wait
        await backend.destroy("unwanted")
    assert not await backend.census()
    await (await backend.create(SPEC, sandbox_id="unwanted")).close()


async def test_a_cancelled_snapshot_leaves_no_layer_and_a_box_that_goes_on(backend: DockerBackend) -> None:
    box = await backend.create(SPEC, sandbox_id="frozen")
    task = asyncio.create_task(backend.snapshot("frozen", snapshot_id="unwanted"))
    await asyncio.sleep(0.03)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    if not task.cancelled():
        await backend.delete_snapshot("unwanted")
    assert not await backend.snapshots()
    assert (await box.exec(["true"], timeout_s=60)).ok


async def test_many_boxes_come_and_go_at_once(backend: DockerBackend) -> None:
    boxes = await asyncio.gather(*(backend.create(SPEC, sandbox_id=f"many-{n}") for n in range(12)))
    results = await asyncio.gather(*(box.exec(sh(f"echo {n}")) for n, box in enumerate(boxes)))
    assert [result.stdout for result in results] == [f"{n}\n".encode() for n in range(12)]
    await asyncio.gather(*(backend.destroy(box.id) for box in boxes))
    assert not await backend.census()
