"""What only pods do: they outlive their server, any server of a store takes them up, and the cluster may take them away."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from docker_engine import BUSYBOX
from kubernetes_cluster import (  # noqa: F401  fixtures
    evict,
    give_slots,
    guest_image,
    kubeconfig_of_an_account,
    kubectl,
    namespace,
    tools_image,
)

from rock_env.backends.kubernetes.backend import KubernetesBackend
from rock_env.backends.kubernetes.options import KubernetesOptions
from rock_env.errors import FailedPrecondition, InfraError, InvalidArgument, ResourceExhausted
from rock_env.sandbox import Sandbox
from rock_env.spec import Resources, SandboxSpec

SMALL = Resources(cpus=1, memory_bytes=128 << 20, disk_bytes=128 << 20)
SPEC = SandboxSpec(resources=SMALL)


@pytest.fixture
def options(guest_image: str, tools_image: str, namespace: str) -> KubernetesOptions:  # noqa: F811
    return KubernetesOptions(
        namespace=namespace, guest=guest_image, image=tools_image, profile="image", reserved=0.1
    )


async def secret() -> bytes:
    return b"s" * 32


@pytest.fixture
async def backend(options: KubernetesOptions) -> AsyncIterator[KubernetesBackend]:
    """Yield a backend of a shared store."""
    made = KubernetesBackend(options, secret=secret)
    yield made
    await made.close()
    assert not await asyncio.to_thread(pods_of, options.namespace), "no pod is left"


def pods_of(namespace: str) -> list[dict[str, Any]]:  # noqa: F811
    listed: list[dict[str, Any]] = json.loads(kubectl("-n", namespace, "get", "pods", "-o", "json"))["items"]
    return listed


async def only_pod(namespace: str) -> str:  # noqa: F811
    (pod,) = await asyncio.to_thread(pods_of, namespace)
    name: str = pod["metadata"]["name"]
    return name


async def run(box: Sandbox, script: str) -> str:
    return (await box.exec(["sh", "-c", script])).stdout.decode()


async def test_another_server_of_the_store_takes_a_box_up_while_its_command_runs(
    backend: KubernetesBackend, options: KubernetesOptions
) -> None:
    box = await backend.create(SPEC, sandbox_id="durable", durable=True)
    await box.write_file("kept", b"1")
    running = asyncio.create_task(box.exec(["sh", "-c", "sleep 3; echo done"], key="long"))
    await asyncio.sleep(0.2)
    other = KubernetesBackend(options, secret=secret)
    taken = await other.adopt("durable", spec=SPEC)
    assert taken is not None
    assert await taken.read_file("kept") == b"1"
    assert (await taken.exec([], key="long")).stdout == b"done\n", "the command ran once, and on"
    assert (await asyncio.gather(running, return_exceptions=True))[0] is not None
    assert "durable" in await other.census()
    await other.destroy("durable")
    assert not await backend.census()
    assert await other.adopt("durable", spec=SPEC) is None
    await other.close()


async def test_a_box_that_nobody_adopted_is_counted_and_destroyed(
    backend: KubernetesBackend, options: KubernetesOptions, tmp_path: Path
) -> None:
    first = KubernetesBackend(options, root=tmp_path)
    await first.create(SPEC, sandbox_id="left", durable=True)
    await first.create(SPEC, sandbox_id="brief", durable=False)
    await first.let_go()
    second = KubernetesBackend(options, root=tmp_path)
    counted = await second.census()
    assert list(counted) == ["left"]
    assert re.fullmatch(r"pod rock-\w+-left \(Running\)", counted["left"])
    assert not await backend.census(), "of another store"
    await second.destroy("left")
    assert not await second.census()
    await second.close()


async def test_a_stranger_to_the_store_is_told_nothing(
    backend: KubernetesBackend, options: KubernetesOptions
) -> None:
    await backend.create(SPEC, sandbox_id="mine", durable=True)
    pod = (await asyncio.to_thread(pods_of, options.namespace))[0]
    from rock_env.guest_host.link import GuestLink

    with pytest.raises(InfraError, match="does not know the token"):
        await GuestLink.reach(pod["status"]["podIP"], options.port, token=b"x" * 32)


OWNER = """
import asyncio, sys
from rock_env.backends.kubernetes.backend import KubernetesBackend
from rock_env.backends.kubernetes.options import KubernetesOptions
from rock_env.spec import SandboxSpec, Resources

async def secret():
    return b"s" * 32

async def main():
    options = KubernetesOptions.model_validate_json(sys.argv[1])
    backend = KubernetesBackend(options, secret=secret)
    spec = SandboxSpec(resources=Resources(cpus=1, memory_bytes=128 << 20, disk_bytes=128 << 20))
    box = await backend.create(spec, sandbox_id="killed", durable=True)
    print("up", flush=True)
    await box.exec(["sh", "-c", "echo begun; sleep 4; echo done"], key="work", timeout_s=60)

asyncio.run(main())
"""


async def test_killing_the_server_costs_no_box_and_no_command(
    backend: KubernetesBackend, options: KubernetesOptions
) -> None:
    owner = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OWNER, options.model_dump_json(), stdout=asyncio.subprocess.PIPE
    )
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"up\n"
    await asyncio.sleep(0.3)
    owner.kill()
    await owner.wait()
    box = await backend.adopt("killed", spec=SPEC)
    assert box is not None
    assert (await box.exec([], key="work")).stdout == b"begun\ndone\n"


async def test_a_pod_that_is_evicted_is_the_clusters_doing(
    backend: KubernetesBackend, options: KubernetesOptions
) -> None:
    box = await backend.create(SPEC, sandbox_id="evicted")
    task = asyncio.create_task(box.exec(["sleep", "600"], timeout_s=600))
    name = await only_pod(options.namespace)
    await asyncio.to_thread(evict, options.namespace, name)
    result = await task
    assert (result.exit_code, result.ok) == (None, False)
    assert "deleted by somebody else: an eviction" in result.infra_error
    await box.close()


async def test_a_quota_and_a_full_cluster_are_refused_by_name(
    backend: KubernetesBackend, options: KubernetesOptions
) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"pods": "0"}},
    }
    await asyncio.to_thread(kubectl, "-n", options.namespace, "create", "-f", "-", given=json.dumps(quota))
    try:
        with pytest.raises(ResourceExhausted, match="exceeded quota"):
            await backend.create(SPEC, sandbox_id="over")
    finally:
        await asyncio.to_thread(kubectl, "-n", options.namespace, "delete", "resourcequota", "none")
    hurried = KubernetesBackend(options.model_copy(update={"start_s": 2.0}), secret=secret)
    with pytest.raises(ResourceExhausted, match="no node had room"):
        await hurried.create(SandboxSpec(resources=Resources(cpus=5000)), sandbox_id="huge")
    with pytest.raises(ResourceExhausted, match="no node had room"):
        await hurried.create(SandboxSpec(resources=Resources(gpus=1)), sandbox_id="gpu")
    await hurried.close()


async def test_a_node_has_so_many_sandboxes_and_no_more(
    backend: KubernetesBackend, options: KubernetesOptions
) -> None:
    """Each takes one of a resource that the operator gives the node; who finds none left is told soon."""
    slot = await asyncio.to_thread(give_slots, options.namespace, 2)
    capped = KubernetesBackend(options.model_copy(update={"slot": slot, "room_s": 3.0}), secret=secret)
    boxes = [await capped.create(SPEC, sandbox_id=f"s{number}") for number in range(2)]
    asked_at = time.monotonic()
    with pytest.raises(ResourceExhausted, match=rf"no node had room.*within 3 s.*Insufficient {slot}"):
        await capped.create(SPEC, sandbox_id="third")
    assert time.monotonic() - asked_at < 20
    await boxes[0].close()
    again = await capped.create(SPEC, sandbox_id="again")
    assert (await again.exec(["true"])).ok
    await capped.close()


@pytest.mark.parametrize("user", [None, 12345])
async def test_a_restricted_pod_runs_busybox_as_anyone_on_a_read_only_root(
    backend: KubernetesBackend, options: KubernetesOptions, user: int | None
) -> None:
    careful = options.model_copy(
        update={"profile": "restricted", "image": BUSYBOX, "user": user, "read_only_root": True}
    )
    tight = KubernetesBackend(careful, secret=secret)
    if user is None:
        with pytest.raises(InvalidArgument, match="profile=image"):
            await tight.create(SPEC, sandbox_id="root")
    else:
        box = await tight.create(SPEC, sandbox_id="anyone")
        await box.write_file("here", b"x")
        assert await run(box, "id -u; cat here; pwd") == "12345\nx/workspace\n"
        assert "Read-only" in await run(box, "touch /etc/x 2>&1")
        assert await run(box, "touch /tmp/x && echo ok") == "ok\n"
        assert await run(box, "ls -A /opt/rock/run/door; ls -A /var/run/secrets 2>/dev/null") == ""
        assert await run(box, "grep -h ^Cap /proc/self/status | cut -f2 | sort -u") == "0000000000000000\n"
        assert (
            await run(box, "env | grep -c -e KUBERNETES -e ROCK_TOKEN; grep -a ROCK_TOKEN /proc/1/environ")
            == "0\n"
        )
        assert await run(box, "grep -h -e ^NoNewPrivs -e ^Seccomp: /proc/self/status | cut -f2") == "1\n2\n"
    await tight.close()


async def test_a_server_without_rights_says_which_it_needs(
    options: KubernetesOptions, tmp_path: Path
) -> None:
    config = kubeconfig_of_an_account(options.namespace, tmp_path, role=None)
    poor = KubernetesBackend(options.model_copy(update={"kubeconfig": config}))
    with pytest.raises(FailedPrecondition, match="create, delete, get, list and watch"):
        await poor.create(SPEC, sandbox_id="no")
    await poor.close()


@asynccontextmanager
async def recorded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[tuple[str, httpx.URL]]]:
    """Note every request of the backend to the cluster's API."""
    seen: list[tuple[str, httpx.URL]] = []
    send = httpx.AsyncClient.send

    async def noting(client: httpx.AsyncClient, request: httpx.Request, **more: Any) -> httpx.Response:
        seen.append((request.method, request.url))
        return await send(client, request, **more)

    monkeypatch.setattr(httpx.AsyncClient, "send", noting)
    yield seen


async def test_commands_do_not_go_by_the_api(
    backend: KubernetesBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await backend.create(SPEC, sandbox_id="quiet")
    async with recorded(monkeypatch) as seen:
        for number in range(100):
            assert (await box.exec(["true"], key=f"k{number}")).ok
        assert len(seen) <= 1
    await box.close()


async def test_a_sandbox_that_is_there_is_not_made_again(
    backend: KubernetesBackend, options: KubernetesOptions
) -> None:
    await backend.create(SPEC, sandbox_id="once", durable=True)
    other = KubernetesBackend(options, secret=secret)
    with pytest.raises(InvalidArgument, match="exists already"):
        await other.create(SPEC, sandbox_id="once", durable=True)
    await other.close()


async def test_a_create_whose_answer_is_lost_makes_one_pod(
    backend: KubernetesBackend, options: KubernetesOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, lost = httpx.AsyncClient.send, []

    async def losing(client: httpx.AsyncClient, request: httpx.Request, **more: Any) -> httpx.Response:
        response = await send(client, request, **more)
        if request.method == "POST" and not lost:
            lost.append(response)
            raise httpx.ReadError("the answer was lost")
        return response

    monkeypatch.setattr(httpx.AsyncClient, "send", losing)
    box = await backend.create(SPEC, sandbox_id="once")
    assert lost
    assert (await box.exec(["true"])).ok
    assert await only_pod(options.namespace) == (await backend.census())["once"].split()[1]
    await box.close()


async def test_a_create_that_is_given_up_leaves_no_pod(backend: KubernetesBackend) -> None:
    await backend.census()
    making = asyncio.create_task(backend.create(SPEC, sandbox_id="given-up"))
    await asyncio.sleep(0.05)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert not await backend.census()
