"""A box that asks for packages gets them from its server's mirror, and reaches nothing else."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from docker_engine import BUSYBOX, bundles, engine  # noqa: F401  fixtures
from package_upstream import FakeUpstream

from rock_env.backends.docker.backend import DockerBackend
from rock_env.errors import InvalidArgument
from rock_env.server.node import Node
from rock_env.server.options import ServerOptions
from rock_env.server.sandboxes.core import SandboxCore, SandboxWish
from rock_env.spec import NetworkPolicy, SandboxSpec
from rock_env.store.sqlite.records import SqliteStore

ASKS = SandboxSpec(image=BUSYBOX, network=NetworkPolicy(enabled=True, allow=("rock:packages",)))
DOCKER0 = "172.17.0.1"


@pytest.fixture
def state() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="rock-mirror-"))  # short: sockets lie in it
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream().serving() as serving:
        yield serving


async def test_boxes_get_packages_of_the_mirror_alone(
    engine: None,  # noqa: F811
    bundles: Path,  # noqa: F811
    state: Path,
    upstream: FakeUpstream,
) -> None:
    if shutil.which("iptables") is None:
        pytest.skip("no iptables here (Debian: apt-get install iptables)")
    options = ServerOptions(
        state=str(state),
        packages=f"{DOCKER0}:0",
        packages_pypi=f"{upstream.url}/simple",
        packages_npm=upstream.url,
        packages_debian=upstream.url,
    )
    path = upstream.add_pypi("thing", b"a wheel")
    async with Node.open(options) as node, await SqliteStore.open() as store:
        router = node.pooled(DockerBackend(root=state / "docker", bundles=bundles), uses_registry=["docker"])
        async with SandboxCore(router, store, pin=node.pin, provide=node.provide) as core:
            file = "${PIP_INDEX_URL%simple/}files/thing/thing-1.0-py3-none-any.whl"
            for _ in range(2):
                made = await core.create(SandboxWish(ASKS))
                async with core.using(made.id) as box:
                    got = await box.exec(["sh", "-c", f"wget -q -O - {file}"])
                    assert got.stdout == b"a wheel", got.stderr
                    other = await box.exec(["wget", "-q", "-T", "2", "-O", "-", f"{upstream.url}{path}"])
                    assert other.exit_code != 0
                await core.delete(made.id)
            assert upstream.asked[path] == 1
        await router.close()


async def test_a_server_without_a_mirror_says_so(engine: None, bundles: Path, state: Path) -> None:  # noqa: F811
    async with Node.open(ServerOptions()) as node, await SqliteStore.open() as store:
        router = node.pooled(DockerBackend(root=state / "docker", bundles=bundles))
        async with SandboxCore(router, store, pin=node.pin, provide=node.provide) as core:
            with pytest.raises(InvalidArgument, match="--packages"):
                await core.create(SandboxWish(ASKS))
        await router.close()
