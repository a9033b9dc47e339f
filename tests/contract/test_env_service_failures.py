"""How the EnvService fails: truthfully, only where it must, and leaving nothing behind.

Real deaths: workers, servers and owners are killed, environments hang, crash and raise.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
import transports
from toy_episodes import started

from rock_env.client import AsyncEnv, Client
from rock_env.env import StepResult
from rock_env.errors import DeadlineExceeded, EnvLost, FailedPrecondition, InfraError, NotFound, Unavailable
from rock_env.local import EmbeddedServer, embedded, start_embedded

pytestmark = pytest.mark.any_address

TOYS = [f"--env={Path(__file__).with_name('toy_envs.py')}:TOY"]


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with transports.served([*TOYS, "--workers=2", "--hang-grace-s=0.3"]) as running:
        yield running


@pytest.fixture
async def client(server: EmbeddedServer) -> AsyncIterator[Client]:
    async with Client(server.address) as connected:
        yield connected


async def on_two_workers(client: Client) -> tuple[list[AsyncEnv], list[int]]:
    """Start environments until both workers have some; return them with their workers' process ids."""
    envs: list[AsyncEnv] = []
    pids: list[int] = []
    while len(set(pids)) < 2:
        envs.append(await started(client))
        pids.append(int((await envs[-1].step("pid")).observation))
    return envs, pids


@pytest.mark.own_server
async def test_a_server_that_is_gone_is_named() -> None:
    server = await asyncio.to_thread(start_embedded, [*TOYS, "--workers=1"])
    async with Client(server.address, retry_for_s=0.2) as client:
        env = await started(client)
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(Unavailable, match=r"(?s)unix://.*Is it running"):
            await env.step("go")
        with pytest.raises(FailedPrecondition, match="unknown"):
            await env.step("go")
        with pytest.raises(Unavailable):
            await client.make("toy")
    await asyncio.to_thread(server.close)


async def test_an_exception_of_the_environment_is_an_infra_error(client: Client) -> None:
    env = await started(client)
    with pytest.raises(InfraError, match="ValueError: as asked"):
        await env.step("raise")
    with pytest.raises(InfraError, match="until it is reset"):
        await env.evaluate()
    await env.reset("train/0", 0)
    assert (await env.step("go")).info == {"steps": 1}


@pytest.mark.own_server
async def test_a_dead_worker_costs_only_its_own_environments(client: Client) -> None:
    envs, pids = await on_two_workers(client)
    os.kill(pids[0], signal.SIGKILL)
    for env, pid in zip(envs, pids, strict=True):
        if pid == pids[0]:
            with pytest.raises(EnvLost, match="Make the environment again"):
                await env.step("go")
            with pytest.raises(EnvLost):
                await env.reset("train/0", 0)
            await env.close()
        else:
            assert (await env.step("go")).info == {"steps": 2}
    _, new_pids = await on_two_workers(client)
    assert pids[0] not in new_pids


@pytest.mark.own_server
async def test_a_worker_that_dies_in_a_batch_loses_the_rest_of_it(client: Client) -> None:
    envs, pids = await on_two_workers(client)
    results = await client.step_many([(env, "exit" if i == 0 else "go") for i, env in enumerate(envs)])
    for result, pid in zip(results, pids, strict=True):
        assert isinstance(result, EnvLost if pid == pids[0] else StepResult)


async def test_a_hung_item_is_late_and_the_others_are_not(client: Client) -> None:
    envs = [await started(client) for _ in range(8)]
    steps = [(env, "hang" if i == 0 else "go") for i, env in enumerate(envs)]
    results = await client.step_many(steps, timeout_s=0.2)
    assert isinstance(results[0], DeadlineExceeded)
    assert all(isinstance(result, StepResult) for result in results[1:])
    with pytest.raises(DeadlineExceeded, match="until it is reset"):
        await envs[0].step("go")
    await envs[0].reset("train/0", 0)
    assert (await envs[0].step("go")).info == {"steps": 1}


@pytest.mark.own_server
async def test_a_worker_hung_in_native_code_is_replaced(client: Client) -> None:
    env = await started(client)
    with pytest.raises(EnvLost, match="no progress"):
        await env.step("hang natively", timeout_s=0.2)
    await started(client)


async def test_closing_the_client_answers_what_is_pending(server: EmbeddedServer) -> None:
    async with Client(server.address) as client:
        sent, queued = await started(client), await started(client)
        running = asyncio.ensure_future(sent.step("hang", timeout_s=0.3))
        await asyncio.sleep(0.05)
        waiting = asyncio.ensure_future(queued.step("go"))
        await asyncio.sleep(0)
    for call in (running, waiting):
        with pytest.raises(Unavailable, match="closed before the answer came"):
            await call
    with pytest.raises(Unavailable, match="Open a new one"):
        await client.make("toy")


@pytest.mark.own_server
async def test_idle_environments_and_checkpoints_are_reaped() -> None:
    async with embedded([*TOYS, "--workers=1", "--idle-timeout-s=0.2"]) as address, Client(address) as client:
        env, busy = await started(client), await started(client)
        checkpoint = await env.checkpoint()
        for _ in range(10):
            await asyncio.sleep(0.05)
            await busy.step("go")
        with pytest.raises(NotFound, match="idle"):
            await env.step("go")
        with pytest.raises(NotFound, match="unknown checkpoint"):
            await busy.restore(checkpoint)


@pytest.mark.own_server
async def test_nothing_outlives_a_killed_owner() -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _OWNER, *TOYS),
        stdout=asyncio.subprocess.PIPE,
        stdin=asyncio.subprocess.DEVNULL,
    )
    assert owner.stdout is not None
    server_pid, worker_pid, address = (await owner.stdout.readline()).decode().split()
    server, worker = psutil.Process(int(server_pid)), psutil.Process(int(worker_pid))
    assert server.is_running()
    assert worker.is_running()
    owner.kill()
    await owner.wait()
    _, alive = await asyncio.to_thread(psutil.wait_procs, [server, worker], 30)
    assert alive == []
    assert not Path(address.removeprefix("unix://")).parent.exists()


_OWNER = """
import asyncio, sys, time
from rock_env.client import Client
from rock_env.local import start_embedded

async def main():
    server = start_embedded(sys.argv[1:])
    async with Client(server.address) as client:
        env = await client.make("toy")
        await env.reset("train/0", 0)
        print(server.pid, (await env.step("pid")).observation, server.address, flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.mark.own_server
def test_a_bad_option_is_one_clear_line(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InfraError, match="did not start"):
        start_embedded(["--env=nowhere.py:ENV"])
    message = capfd.readouterr().err.strip()
    assert message.startswith("rock server: environment reference")
    assert "\n" not in message
