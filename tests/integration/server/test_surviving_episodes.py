"""Episodes whose server is killed and started again: they come out as those of a server that lives."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agent_runtime.agents.oracle import record_expert
from agent_runtime.surviving import Surviving
from agent_runtime.types import AgentConfig, PrefixTurn, RolloutRequest, SamplingParams, Start, Trajectory
from ale.training.rollouts import ByteTemplate
from rock_env.client import Client
from rock_env.env import Oracle
from rock_env.env_workers.frames import Kind
from rock_env.errors import FailedPrecondition
from rock_env.plugins import env_params, load_env
from rock_env.proto.v1 import env_pb2 as pb
from rock_env.server.app import in_process
from rock_env.server.envs.rules import OwnRules
from rock_env.server.envs.sandboxed import SandboxedEnv
from rock_env.server.options import ServerOptions
from rock_env.spec import NetworkPolicy


class Server:
    """One server process after the other at one address."""

    def __init__(self, folder: Path) -> None:
        self.address = f"unix://{folder}/s"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        command = [sys.executable, "-m", "rock_env.server", f"--listen={self.address}", "--workers=1"]
        self._process = await asyncio.create_subprocess_exec(
            *command, "--isolation=none", stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert await self._process.stdout.readline()

    async def end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        await self._process.wait()

    async def replaced(self) -> None:
        await self.end(signal.SIGKILL)
        await self.start()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    made = Server(tmp_path)
    await made.start()
    yield made
    await made.end(signal.SIGTERM)


def request(env: str, params: str, start: Start) -> RolloutRequest:
    return RolloutRequest(
        id="r",
        env=env,
        params_json=params,
        task_id="train/0",
        group_id="g",
        index=0,
        seed=0,
        agent=AgentConfig(max_turns=60),
        sampling=SamplingParams(),
        start=start,
    )


def player(env: str, params: str) -> Oracle:
    spec = load_env(env)
    chosen = env_params(spec, params)
    return spec.oracle(chosen, spec.tasks(chosen).get("train", 0))


@asynccontextmanager
async def client(server: Server) -> AsyncIterator[Client]:
    async with Client(server.address) as made:
        yield made


async def played(
    server: Server, asked: RolloutRequest, kills: set[int], oracle: Oracle | None = None
) -> Trajectory:
    """Play by the oracle; the server is killed and started again before these of its answers."""
    player_ = oracle or player(asked.env, asked.params_json)
    loop, turns = asyncio.get_running_loop(), iter(range(1000))

    def act(observation: str) -> str:  # in a thread
        if next(turns) in kills:
            asyncio.run_coroutine_threadsafe(server.replaced(), loop).result()
        return player_(observation)

    async with client(server) as rock:
        return await record_expert(asked, rock=Surviving(rock), oracle=act, template=ByteTemplate())


def story(trajectory: Trajectory) -> tuple[object, ...]:
    assert trajectory.failure is None, trajectory.failure
    return (
        trajectory.first_observation,
        trajectory.actions,
        trajectory.observations,
        trajectory.turn_rewards,
        trajectory.reward,
        trajectory.passed,
        trajectory.stop_reason,
    )


SLIPPERY = json.dumps({"slippery": True, "size": 6})


@pytest.mark.parametrize(
    ("env", "params", "kills"),
    [
        ("frozen_lake", "{}", {1, 3}),
        ("frozen_lake", SLIPPERY, {1, 2, 3, 4, 6}),
        ("terminal", "{}", {1}),
        ("swe", "{}", {2, 4}),
    ],
    ids=["game", "chance", "terminal", "swe"],
)
async def test_a_killed_server_changes_nothing(
    server: Server, env: str, params: str, kills: set[int]
) -> None:
    asked = request(env, params, Start(env_seed=3))
    assert story(await played(server, asked, kills)) == story(await played(server, asked, set()))


async def test_chance_goes_on_as_it_did_from_an_anchor(server: Server) -> None:
    oracle = player("frozen_lake", SLIPPERY)
    whole = await played(server, request("frozen_lake", SLIPPERY, Start(env_seed=3)), set())
    prefix = tuple(PrefixTurn(*pair) for pair in zip(whole.actions[:2], whole.observations[:2], strict=True))
    start = Start(3, first_observation=whole.first_observation, prefix=prefix, resume_seed=77)
    asked = request("frozen_lake", SLIPPERY, start)
    undisturbed = await played(server, asked, set(), oracle)
    assert len(undisturbed.turns) > 3
    assert story(await played(server, asked, {0, 2}, oracle)) == story(undisturbed)
    other = replace(asked, start=replace(start, resume_seed=78))
    assert story(await played(server, other, set(), oracle)) != story(undisturbed), "the seed matters"


async def test_a_lost_episode_with_a_network_is_not_played_twice() -> None:
    plain = load_env("terminal")
    assert plain.sandbox is not None
    spec = replace(plain, sandbox=replace(plain.sandbox, network=NetworkPolicy(enabled=True)))
    async with in_process(ServerOptions(listen="unix:///nowhere")) as core:
        rules = OwnRules(plain, env_params(plain, "{}"), core.catalog)
        env = SandboxedEnv("e-1", spec=spec, rules=rules, boxes=core.boxes)
        asked = pb.ResetRequest(task_id="train/0", sequence=1, idempotency_key="k", recovered_turn=0)
        with pytest.raises(FailedPrecondition, match="has a network, and what the lost episode sent"):
            await env.call(Kind.RESET, asked, timeout_s=60)
        await env.close()
