"""Three servers of one store behind a proxy that takes turns are one ROCK: what needs only an address holds of them.

The contract's tests that are marked `any_address` run against the proxy, each gRPC call by another of its connections.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from integration.replica_fleet import Fleet, running_fleet
from round_robin import round_robin

CONTRACT = Path(__file__).parents[2] / "contract"
NAMES = {"toy_envs.py": ("TOY", "PLAIN", "BOX"), "vetted_envs.py": ("GAME", "BOXED", "UNSOLVED")}
REPLICAS = 3


@pytest.fixture
async def fleet(new_database: Callable[[], str]) -> AsyncIterator[Fleet]:
    async with running_fleet(new_database()) as made:
        envs = [f"--env={CONTRACT / file}:{name}" for file, names in NAMES.items() for name in names]
        for _ in range(REPLICAS):
            await made.start(
                *("--insecure", "--isolation=namespaces", "--http=127.0.0.1:0", "--hang-grace-s=0.3"), *envs
            )
        yield made


@pytest.mark.timeout(600)
@pytest.mark.turn(0)
async def test_what_needs_only_an_address_holds_behind_a_proxy(fleet: Fleet) -> None:
    grpc, http = ([getattr(it, name) for it in fleet.servers] for name in ("address", "http"))
    async with round_robin(lambda: grpc) as port, round_robin(lambda: http) as rest:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "any_address and not own_server"),
            str(CONTRACT),
            env={**os.environ, "ROCK_TEST_SERVERS": f"{port},{rest}"},
            cwd=CONTRACT.parents[1],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    said = output.decode()
    assert process.returncode == 0, said[-6000:]
    found = re.search(r"(\d+) passed", said)
    assert found is not None, said
    assert int(found[1]) > 220, "the marked tests"
