"""The contract suite of all backends, on a real Docker engine; what containers do otherwise is told here."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from docker_engine import TOOLS, bundles, docker, engine  # noqa: F401  fixtures

from rock_env.backends.docker.backend import DockerBackend
from rock_env.errors import InvalidArgument, Unimplemented
from rock_env.guest_host.box import GuestBox
from rock_env.sandbox import Sandbox
from rock_env.spec import Resources, SandboxSpec

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))

from test_sandbox_backend import *  # noqa: F403  every test of the suite runs in this module, too
from test_sandbox_backend import MARK, appears, sh, vanishes

del test_killing_the_server_ends_its_boxes  # noqa: F821  test_docker_backend has it, for durable boxes as well


class _OfTools(DockerBackend):
    """The backend, for a suite that names no image."""

    async def create(self, spec: SandboxSpec, *, sandbox_id: str, **rest: object) -> GuestBox:
        return await super().create(replace(spec, image=TOOLS), sandbox_id=sandbox_id, **rest)  # type: ignore[arg-type]


@pytest.fixture
def make_backend(engine: None, bundles: Path) -> Callable[[Path], DockerBackend]:  # noqa: F811
    return lambda root: _OfTools(bundles=bundles)


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", "a/../../../etc/passwd", "link/passwd", "direct"]
)
async def test_no_path_leads_out_of_the_box(box: Sandbox, path: str) -> None:
    """All of these are the box's own here: its whole file system is."""
    await box.exec(sh("ln -s /etc link; ln -s /etc/passwd direct"))
    await box.write_file(path, b"the box's own")
    assert await box.read_file(path) == b"the box's own"
    assert b"the box's own" not in await asyncio.to_thread(Path("/etc/passwd").read_bytes)
    with pytest.raises(InvalidArgument):
        await box.read_file("")


async def test_limits_hold(backend: DockerBackend) -> None:
    resources = Resources(memory_bytes=64 << 20, disk_bytes=1 << 20)
    box = await backend.create(SandboxSpec(resources=resources), sandbox_id="box-3")
    memory = await box.exec(sh("tail /dev/zero"))
    assert (memory.exit_code, memory.signal, memory.oom_killed) == (None, 9, True)
    assert (await box.exec(["true"])).ok, "the guest and the box live on"
    disk = await box.exec(sh("exec head -c 5M /dev/zero > big"))
    assert (disk.exit_code, disk.signal) == (None, 25), "SIGXFSZ"
    assert (await box.exec(sh("ulimit -n"))).stdout == b"1024\n"


async def test_a_spec_that_cannot_be_honoured_is_refused(engine: None, bundles: Path) -> None:  # noqa: F811
    backend = DockerBackend(bundles=bundles)
    cases = {
        "needs an image": SandboxSpec(),
        "has no image 'rock-test:nothing'": SandboxSpec(image="rock-test:nothing"),
        "not an image name": SandboxSpec(image="../containers"),
        "Known: .*runc": SandboxSpec(image=TOOLS, runtime="no-such-runtime"),
        "at least": SandboxSpec(image=TOOLS, resources=Resources(memory_bytes=1)),
        "workdir": SandboxSpec(image=TOOLS, workdir="relative"),
        "outside /proc": SandboxSpec(image=TOOLS, workdir="/proc/self"),
    }
    for message, spec in cases.items():
        with pytest.raises(InvalidArgument, match=message):
            await backend.create(spec, sandbox_id="no")
    with pytest.raises(Unimplemented, match="GPU"):
        await backend.create(SandboxSpec(image=TOOLS, resources=Resources(gpus=1)), sandbox_id="no")
    assert not await backend.census(), "nothing is left behind"
    await backend.close()


async def test_a_box_whose_holder_is_killed_says_so(backend: DockerBackend) -> None:
    box = await backend.create(SandboxSpec(), sandbox_id="doomed")
    task = asyncio.create_task(box.exec(sh(f"exec -a {MARK}7 sleep 600"), timeout_s=600))
    await appears(f"{MARK}7")
    container = (await backend.census())["doomed"].split()[1]
    pid = await asyncio.to_thread(docker, "inspect", "--format", "{{.State.Pid}}", container)
    os.kill(int(pid), 9)
    result = await task
    assert (result.exit_code, result.ok) == (None, False)
    assert "killed from outside" in result.infra_error
    assert "137" in await box.lost()
    await vanishes(f"{MARK}7")
    await box.close()
    assert not await backend.census()
