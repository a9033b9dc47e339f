"""Forks out of a warm pool of containers: clean boxes in stock are given a snapshot's files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from docker_engine import BUSYBOX, bundles, engine, reachable_layers  # noqa: F401  fixtures

from rock_env.backends.docker.backend import DockerBackend
from rock_env.backends.pool import PooledBackend
from rock_env.errors import NotFound
from rock_env.spec import SandboxSpec

SPEC = SandboxSpec(image=BUSYBOX)


@pytest.fixture
async def pooled(engine: None, bundles: Path) -> AsyncIterator[PooledBackend]:  # noqa: F811
    made = PooledBackend(DockerBackend(bundles=bundles))
    yield made
    await made.close()


@pytest.mark.usefixtures("reachable_layers")
async def test_a_fork_takes_a_box_in_stock(pooled: PooledBackend) -> None:
    trunk = await pooled.create(SPEC, sandbox_id="trunk")
    await trunk.write_file("/workspace/note", b"the trunk's")
    await pooled.snapshot("trunk", snapshot_id="branching")
    pooled.set_target(SPEC, 3)
    for _ in range(1500):
        if pooled.status()[0].ready == 3:
            break
        await asyncio.sleep(0.02)
    stock = pooled.stock
    forks = [await pooled.create(SPEC, sandbox_id=f"fork-{n}", snapshot="branching") for n in range(3)]
    assert {fork.id for fork in forks} == stock
    for n, fork in enumerate(forks):
        assert await fork.read_file("note") == b"the trunk's"
        await fork.write_file("note", str(n).encode())
    assert await trunk.read_file("note") == b"the trunk's"
    with pytest.raises(NotFound):
        await pooled.create(SPEC, sandbox_id="no", snapshot="never-made")
