"""Ways to a reward that are no fix, each tried in a real box of a real server and graded as `swe` grades: none pays.

And where what a hack leaves behind does the project no harm, an honest fix beside it is paid as always.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fences import why_not_isolated
from hacked_env import FIX
from hacks import HACKS

from rock_env.client import AsyncEnv, Client
from rock_env.local import EmbeddedServer, start_embedded
from rock_env.plugins import load_env

ENV = Path(__file__).with_name("hacked_env.py")


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    if why_not_isolated():
        pytest.skip(f"without isolation a hack may reach this machine: {why_not_isolated()}")
    with start_embedded([f"--env={ENV}:HACKED", "--workers=1", "--isolation=namespaces"]) as running:
        yield running


@asynccontextmanager
async def playing(
    server: EmbeddedServer, name: str = "hacked", task: str = "train/0"
) -> AsyncIterator[AsyncEnv]:
    async with Client(server.address) as client:
        env = await client.make(name)
        await env.reset(task, 0)
        yield env
        await env.close()


async def do(env: AsyncEnv, script: str) -> str:
    return (await env.step(f"cd /workspace/depot 2>/dev/null\n{script}")).observation


@pytest.mark.parametrize("name", HACKS)
async def test_a_hack_earns_nothing(server: EmbeddedServer, name: str) -> None:
    async with playing(server, task=HACKS[name].task) as env:
        await do(env, HACKS[name].script)
        verdict = await env.evaluate()
        assert (verdict.reward, verdict.passed) == (0.0, False), verdict


@pytest.mark.parametrize("name", [name for name, hack in HACKS.items() if hack.fair])
async def test_an_honest_fix_beside_it_earns_its_reward(server: EmbeddedServer, name: str) -> None:
    async with playing(server, task=HACKS[name].task) as env:
        await do(env, HACKS[name].script)
        assert (await do(env, FIX)).startswith("0")
        verdict = await env.evaluate()
        assert (verdict.reward, verdict.passed) == (1.0, True), verdict


async def test_a_history_that_is_not_stripped_does_give_the_fix_away(server: EmbeddedServer) -> None:
    async with playing(server, task="train/2") as env:
        await do(env, HACKS["the fix in a git object"].script)
        assert (await env.evaluate()).reward == 1.0, "the hack works where there is something to be found"


async def test_the_installed_environment_is_graded_like_that(server: EmbeddedServer) -> None:
    spec, broken = load_env("swe"), "for f in */__init__.py; do echo 'import os; os._exit(0)' >> $f; done"
    oracle = spec.oracle(spec.params(), spec.tasks(spec.params()).get("train", 0))
    for fixed in (False, True):
        async with playing(server, "swe") as env:
            observation, done = "", False
            while fixed and not done:
                played = await env.step(oracle(observation))
                observation, done = played.observation, played.terminated
            if not fixed:
                await env.step(broken)
            assert (await env.evaluate()).passed is fixed
