"""The contract suite of all backends, on pods of a real cluster; what pods do otherwise is told here."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from kubernetes_cluster import guest_image, kubectl, namespace, tools_image  # noqa: F401  fixtures

from rock_env.backends.kubernetes.backend import KubernetesBackend
from rock_env.backends.kubernetes.options import KubernetesOptions
from rock_env.errors import InvalidArgument, NotFound, Unimplemented
from rock_env.guest_host.box import GuestBox
from rock_env.sandbox import Sandbox
from rock_env.spec import NetworkPolicy, Resources, SandboxSpec

sys.path.insert(0, str(Path(__file__).parents[2] / "contract"))

from test_sandbox_backend import *  # noqa: F403  every test of the suite runs in this module, too
from test_sandbox_backend import MARK, appears, sh, vanishes

# Boxes of the process backend alone, and its server's end, which test_kubernetes_backend has for pods.
del test_process_boxes_refuse_images_network_and_folders_of_the_system  # noqa: F821
del test_killing_the_server_ends_its_boxes  # noqa: F821

SMALL = Resources(cpus=1, memory_bytes=256 << 20, disk_bytes=256 << 20)


class _OfTools(KubernetesBackend):
    """The backend, for a suite that names no image; its boxes ask for little, so that many fit one node."""

    async def create(self, spec: SandboxSpec, *, sandbox_id: str, **rest: object) -> GuestBox:
        if spec.resources == Resources():
            spec = replace(spec, resources=SMALL)
        return await super().create(spec, sandbox_id=sandbox_id, **rest)  # type: ignore[arg-type]


@pytest.fixture
def options(guest_image: str, tools_image: str, namespace: str) -> KubernetesOptions:  # noqa: F811
    return KubernetesOptions(
        namespace=namespace, guest=guest_image, image=tools_image, profile="image", reserved=0.1
    )


@pytest.fixture
def make_backend(options: KubernetesOptions) -> Callable[[Path], KubernetesBackend]:
    return lambda root: _OfTools(options)


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


async def test_limits_hold(backend: KubernetesBackend) -> None:
    resources = Resources(cpus=1, memory_bytes=64 << 20, disk_bytes=1 << 20)
    box = await backend.create(SandboxSpec(resources=resources), sandbox_id="box-3")
    memory = await box.exec(sh("tail /dev/zero"))
    assert (memory.exit_code, memory.signal, memory.oom_killed) == (None, 9, True)
    disk = await box.exec(sh("exec head -c 5M /dev/zero > big"))
    assert (disk.exit_code, disk.signal) == (None, 25), "SIGXFSZ"
    assert (await box.exec(sh("ulimit -n"))).stdout == b"1024\n"


async def test_a_spec_that_cannot_be_honoured_is_refused(options: KubernetesOptions) -> None:
    backend = KubernetesBackend(options)
    cases = {
        "cannot get the image": SandboxSpec(image="rock-test-registry.invalid/Nothing:1"),
        "not an image name": SandboxSpec(image="../pods"),
        "at least": SandboxSpec(resources=Resources(memory_bytes=1)),
        "workdir": SandboxSpec(workdir="relative"),
        "outside /proc": SandboxSpec(workdir="/proc/self"),
    }
    for message, spec in cases.items():
        with pytest.raises(InvalidArgument, match=message):
            await backend.create(spec, sandbox_id="no")
    refused = {
        "no network": SandboxSpec(network=NetworkPolicy(enabled=True)),
        "allow list": SandboxSpec(network=NetworkPolicy(enabled=True, allow=("example.org",))),
    }
    for message, spec in refused.items():
        with pytest.raises(Unimplemented, match=message):
            await backend.create(spec, sandbox_id="no")
    named = SandboxSpec(image=options.image, preload=("json",))
    with pytest.raises(Unimplemented, match="leave preload empty"):
        await backend.create(named, sandbox_id="no")
    with pytest.raises(NotFound, match="the server that made it"):
        await backend.create(SandboxSpec(), sandbox_id="no", snapshot="layer")
    assert not await backend.census(), "nothing is left behind"
    await backend.close()


async def test_a_box_whose_holder_is_killed_says_so(backend: KubernetesBackend, namespace: str) -> None:  # noqa: F811
    box = await backend.create(SandboxSpec(), sandbox_id="doomed")
    task = asyncio.create_task(box.exec(sh(f"exec -a {MARK}7 sleep 600"), timeout_s=600))
    await appears(f"{MARK}7")
    os.kill(await asyncio.to_thread(pid_of_guest, f"{MARK}7"), 9)
    result = await task
    assert (result.exit_code, result.ok) == (None, False)
    assert "killed from outside" in result.infra_error
    assert "137" in await box.lost()
    await vanishes(f"{MARK}7")
    await box.close()
    assert not await backend.census()


def pid_of_guest(mark: str) -> int:
    """Return the pid, on this machine, of the guest whose command carries `mark`."""
    import psutil
    from test_sandbox_backend import processes_marked

    (command,) = processes_marked(mark)
    return psutil.Process(command).ppid()
