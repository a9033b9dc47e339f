"""MiniWoB++ in the browser environment: equal seeds give equal pages, and the scripted solutions solve."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from rock_env.client import Client
from rock_env.client.env import AsyncEnv
from rock_env.local import start_embedded
from sandboxes.browser import ENV, miniwob
from sandboxes.browser.catalog import BrowserTasks
from sandboxes.browser.miniwob_oracles import SOLVERS
from sandboxes.browser.params import BrowserParams

pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(miniwob.folder() is None, reason="no MiniWoB++: pip install --no-deps miniwob"),
]
PARAMS = BrowserParams(suite="miniwob")
SOURCE = BrowserTasks(PARAMS)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with start_embedded(["--env=sandboxes.browser:ENV"]) as server:
        yield server.address


async def each_task(
    address: str, names: tuple[str, ...], act: Callable[[AsyncEnv, str], Awaitable[bool]]
) -> set[str]:
    """Let `act` try tasks, two at a time; return those for which it said no."""
    wrong: set[str] = set()
    free = asyncio.Semaphore(2)

    async def one(client: Client, name: str) -> None:
        async with free:
            env = await client.make("browser", PARAMS.canonical())
            if not await act(env, f"train/{miniwob.NAMES.index(name)}"):
                wrong.add(name)
            await env.close()

    async with Client(address) as client, asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(one(client, name))
    return wrong


async def test_every_page_begins_the_same_and_is_worth_nothing(address: str) -> None:
    async def twice(env: AsyncEnv, task: str) -> bool:
        first, _, _ = await env.reset(task, 0)
        nothing = await env.evaluate()
        again, _, _ = await env.reset(task, 1)
        return first == again and first.startswith("Goal: ") and nothing.reward == 0.0

    assert await each_task(address, miniwob.NAMES, twice) == set()


async def test_the_scripted_solutions_solve(address: str) -> None:
    async def solve(env: AsyncEnv, task: str) -> bool:
        observation, _, _ = await env.reset(task, 0)
        oracle = ENV.oracle(PARAMS, SOURCE.get("train", int(task.partition("/")[2])))
        for _ in range(PARAMS.max_turns):
            result = await env.step(oracle(observation))
            observation = result.observation
            if result.terminated:
                break
        return (await env.evaluate()).passed

    assert len(SOLVERS) >= 30
    assert await each_task(address, tuple(SOLVERS), solve) == set()
