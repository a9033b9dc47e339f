"""An installation of the chart on a real cluster, from nothing to nothing: `make cluster`.

Installed once, with two replicas and the bundled PostgreSQL. Each test finds it whole and leaves it whole. The last thing
that is looked at is what `helm uninstall` leaves.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from docker_engine import docker, skip_without
from image_registry import running_registry
from installed_rock import (
    CHART,
    CONTEXT,
    EARLIER,
    Installed,
    database_image,
    environments_of,
    eventually,
    helm,
    objects,
    own_namespace,
    skip_where_it_cannot_be,
)
from integration.command_line import ale
from kubernetes_cluster import evict, kubectl, why_no_cluster
from waiting import until

from agent_runtime.store import read_segment
from rock_env.client import AsyncSandbox, Client
from rock_env.client.sandbox.process import RemoteProcess
from rock_env.errors import RockError, Unavailable
from rock_env.spec import Resources, SandboxSpec
from rock_env.tasksets import registered

SPEC = SandboxSpec(resources=Resources(cpus=1, memory_bytes=128 << 20, disk_bytes=128 << 20))
EXAMPLE = Path(__file__).parents[3] / "examples" / "06_own_dockerfile"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the product's images, as `ale rock image push` makes them."""
    if problem := why_no_cluster():
        pytest.skip(f"no Kubernetes cluster: {problem}")
    skip_where_it_cannot_be()
    skip_without("python:3.11-slim", "debian:bookworm-slim")
    folder = tmp_path_factory.mktemp("registry")
    with running_registry(folder) as address:
        pushed = ale("rock", "image", "push", address, cwd=folder, timeout_s=400)
        assert pushed.returncode == 0, pushed.stderr
        docker("rmi", *pushed.stdout.split())  # the node must pull them
        yield address
        names = docker("images", "--format", "{{.Repository}}:{{.Tag}}").splitlines()
        if pulled := [name for name in names if name.startswith(address)]:
            docker("rmi", "--force", *pulled)


@pytest.fixture(scope="module")
def rock(registry: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """Yield the installation; after it was removed the cluster may have nothing that it had not before."""
    database_image()
    with own_namespace("rock-test") as namespace:
        before = objects()
        made = Installed(namespace, registry, tmp_path_factory.mktemp("user"))
        try:
            made.install(CHART, made.values())
            yield made
        finally:
            helm("uninstall", "rock", "-n", namespace, "--ignore-not-found")
        eventually(lambda: objects() <= before, told=lambda: objects() - before)


async def working(client: Client) -> tuple[AsyncSandbox, RemoteProcess]:
    """Make a sandbox with a file and a process that goes on."""
    box = await client.sandboxes.create(spec=SPEC, lease_s=None)
    await box.files.write("kept", b"1")
    script = "echo began; while [ ! -e go ]; do sleep 0.2; done; echo went on"
    return box, await box.start_process(["sh", "-c", script])


async def goes_on(box: AsyncSandbox, process: RemoteProcess) -> None:
    """Check that the file is there and that the process, begun once, runs to its end; delete the sandbox."""
    assert await box.files.read("kept") == b"1"
    await box.files.write("go", b"")
    assert (await process.wait()).stdout == b"began\nwent on\n"
    await box.delete()


def test_the_chart_has_no_lint(rock: Installed) -> None:
    assert "0 chart(s) failed" in helm("lint", str(CHART), "--strict", "--values", rock.values())


def test_helm_test_plays_a_game(rock: Installed) -> None:
    assert "Succeeded" in helm("test", "rock", "-n", rock.namespace)


def test_a_registered_environment_is_pushed_and_played(
    rock: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = rock.environment()

    def run(*words: str) -> str:
        done = ale(*words, cwd=rock.folder, timeout_s=200, **user)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("env", "register", str(EXAMPLE), "--name", "mine", "--no-check")
    run("env", "push", "mine", "--rock", CONTEXT, "--images", rock.registry)
    monkeypatch.setenv("ALE_HOME", user["ALE_HOME"])
    (image_id,) = registered.find("mine").images
    tag = image_id.removeprefix("sha256:")[:32]
    docker("rmi", f"{rock.registry}/task-images:{tag}")  # the node must pull it
    played = run("rollout", "--env", "mine", "--rock", CONTEXT, "--episodes", "1")
    assert "1 of 1 passed, 0 failed to run" in played, played


async def test_killing_the_replica_that_serves_a_training_costs_no_rollout(
    rock: Installed, tmp_path: Path
) -> None:
    words = ["train", "--env", "swe", "--algo", "ipa", "--model", "tiny", "--steps", "2", "--rock", CONTEXT]
    small = ("eval.tasks=1", "eval.progress_tasks=1", "warmup.epochs=5", "env_args.max_turns=6")
    words += [word for setting in small for word in ("-s", setting)]
    with (tmp_path / "log").open("w") as log:
        training = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ale", *words),
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **await asyncio.to_thread(rock.environment), "OMP_NUM_THREADS": "1"},
        )
    run = tmp_path / "runs" / "swe-ipa-seed0"
    first, second = (run / "trajectories" / f"step-{step:06d}.rollouts" for step in (1, 2))

    def said() -> str:
        return (tmp_path / "log").read_text()

    try:
        await until(lambda: first.exists() or training.returncode is not None, within_s=300, every_s=0.1)
        assert training.returncode is None, said()
        pods = await asyncio.to_thread(rock.servers)
        await until(lambda: any(map(environments_of, pods)), within_s=120, every_s=0.05)
        pod = max(pods, key=environments_of)
        assert not second.exists(), said()
        container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("docker://")
        await asyncio.to_thread(docker, "kill", container)  # SIGKILL
        assert await training.wait() == 0, said()
    finally:
        if training.returncode is None:
            training.kill()
            await training.wait()
    assert json.loads((run / "summary.json").read_text())["steps"] == 2
    failures = [rollout.failure for segment in (first, second) for rollout in read_segment(segment)]
    assert failures == [None] * 16
    name = pod["metadata"]["name"]
    after = [each for each in await asyncio.to_thread(rock.servers) if each["metadata"]["name"] == name]
    assert [each["status"]["containerStatuses"][0]["restartCount"] for each in after] == [1]
    await asyncio.to_thread(rock.until_ready)


async def test_an_upgrade_loses_no_sandbox(rock: Installed) -> None:
    before = {pod["metadata"]["uid"] for pod in await asyncio.to_thread(rock.servers)}
    async with rock.client() as client:
        box, process = await working(client)
        pod = (await asyncio.to_thread(rock.boxes))[box.id]["metadata"]["uid"]
        await asyncio.to_thread(rock.upgrade, rock.values(), "--set", "server.logLevel=DEBUG")
        ready = {pod["metadata"]["uid"] for pod in await asyncio.to_thread(rock.servers)}
        assert len(ready - before) >= 2, "two new replicas"
        assert (await asyncio.to_thread(rock.boxes))[box.id]["metadata"]["uid"] == pod
        await goes_on(box, process)


async def test_an_upgrade_from_the_first_chart_loses_no_sandbox(
    rock: Installed, registry: str, tmp_path: Path
) -> None:
    """Its servers are told by hand of the backend that its own values did not know."""
    with own_namespace("rock-first") as namespace:
        old = Installed(namespace, registry, tmp_path)
        images = f"guest={old.image('guest')},image={old.image('tasks')}"
        options = f"namespace={old.sandboxes},{images},profile=image,reserved=0.05"
        first = old.values(
            server={"backends": [f"kubernetes:{options}"], "workers": 1, "drainSeconds": 5}, sandboxes={}
        )
        try:
            await asyncio.to_thread(old.install, EARLIER / "rock-0.1.0.tgz", first)
            async with old.client() as client:
                box, process = await working(client)
                pod = (await asyncio.to_thread(old.boxes))[box.id]["metadata"]["uid"]
                await asyncio.to_thread(old.upgrade, old.values())
                assert (await asyncio.to_thread(old.boxes))[box.id]["metadata"]["uid"] == pod
                await goes_on(box, process)
        finally:
            await asyncio.to_thread(helm, "uninstall", "rock", "-n", namespace, "--ignore-not-found")


async def test_a_sandbox_whose_pod_is_evicted_says_so(rock: Installed) -> None:
    async with rock.client() as client:
        box = await client.sandboxes.create(spec=SPEC, lease_s=None)
        running = asyncio.create_task(box.exec(["sleep", "600"], timeout_s=600))
        name = (await asyncio.to_thread(rock.boxes))[box.id]["metadata"]["name"]
        await asyncio.to_thread(evict, rock.sandboxes, name)
        result = await running
        assert (result.exit_code, result.ok) == (None, False)
        assert "deleted by somebody else: an eviction" in result.infra_error


async def test_a_sandbox_has_no_account_of_the_cluster(rock: Installed) -> None:
    async with rock.client() as client:
        box = await client.sandboxes.create(spec=SPEC, lease_s=None)
        seen = await box.exec(
            ["sh", "-c", "ls /var/run/secrets /run/secrets; env | grep -i -e kubernetes -e token"]
        )
        assert not seen.stdout, seen.stdout
        await box.delete()


async def test_a_restart_of_the_api_server_costs_no_sandbox(rock: Installed) -> None:
    """Meanwhile commands run on, and a Create is refused by name."""
    async with rock.client() as client, rock.client(retry_for_s=0) as hasty:
        box, process = await working(client)
        with no_api_server():
            assert (await box.exec(["cat", "kept"])).stdout == b"1"
            with pytest.raises(Unavailable, match="API of the Kubernetes cluster does not answer"):
                await hasty.sandboxes.create(spec=SPEC)
        another = await client.sandboxes.create(spec=SPEC, lease_s=None, wait_s=120)
        assert (await another.exec(["true"])).ok
        await another.delete()
        await goes_on(box, process)
    await asyncio.to_thread(rock.until_ready)


@contextmanager
def no_api_server() -> Iterator[None]:
    """Kill the API server of the cluster that CLUSTER_STATE names; start it again as it was."""
    state = os.environ.get("CLUSTER_STATE", "")
    file = Path(state) / "run" / "kube-apiserver.pid"
    if not state or not file.exists():
        pytest.skip(
            "the API server can be restarted where CLUSTER_STATE names the folder of a cluster of cluster.sh"
        )
    pid = int(file.read_text())
    command = Path(f"/proc/{pid}/cmdline").read_text().strip("\0").split("\0")
    os.kill(pid, signal.SIGKILL)
    try:
        eventually(lambda: not Path(f"/proc/{pid}/exe").exists())
        yield
    finally:
        again = 'echo $$ >"$1"; exec >>"$2" 2>&1; shift 2; exec "$@"'
        log = str(Path(state) / "log" / "kube-apiserver.log")
        subprocess.run(
            ["setsid", "--fork", "bash", "-c", again, "again", str(file), log, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        ready = ["kubectl", "get", "--raw", "/readyz"]
        eventually(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0)


async def test_a_restart_of_the_database_costs_no_sandbox(rock: Installed) -> None:
    """Meanwhile a Create is refused; what was recorded is there afterwards."""
    scale = ("-n", rock.namespace, "scale", "statefulset/rock-postgresql")
    async with rock.client() as client, rock.client(retry_for_s=0) as hasty:
        box, process = await working(client)
        await asyncio.to_thread(kubectl, *scale, "--replicas=0")
        gone = ("wait", "--for=delete", "pod/rock-postgresql-0", "--timeout=120s")
        try:
            await asyncio.to_thread(kubectl, "-n", rock.namespace, *gone)
            with pytest.raises(RockError) as refused:
                await hasty.sandboxes.create(spec=SPEC)
            assert isinstance(refused.value, Unavailable), refused.value
        finally:
            await asyncio.to_thread(kubectl, *scale, "--replicas=1")
        await asyncio.to_thread(rock.until_ready)
        assert box.id in [each.id for each in await client.sandboxes.list()]
        await goes_on(box, process)
