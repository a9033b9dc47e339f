"""The browser environment in real boxes of a real server: tasks are solvable and replayable, and 0 where nothing is done."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from rock_env.client import Client
from rock_env.client.env import AsyncEnv
from rock_env.client.places import PlacesClient
from rock_env.env import Verdict, observation_hash
from rock_env.errors import ResetDivergence
from rock_env.local import start_embedded
from sandboxes.browser import ENV
from sandboxes.browser.catalog import TEMPLATES, BrowserTasks
from sandboxes.browser.params import BrowserParams

pytestmark = pytest.mark.timeout(600)
IN_FLIGHT = 2
PARAMS = BrowserParams()
SOURCE = BrowserTasks(PARAMS)


def _first_of_each() -> dict[str, str]:
    found = {}
    for split in SOURCE.splits:
        for index in range(len([None for template in TEMPLATES.values() if template.split == split])):
            found[SOURCE.get(split, index).payload.partition("/")[0]] = f"{split}/{index}"
    return found


TASKS = _first_of_each()
"""The first task of each template."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with start_embedded(["--env=sandboxes.browser:ENV"]) as server:
        yield server.address


async def each_task(address: str, act: Callable[[AsyncEnv, str], Awaitable[str]]) -> dict[str, str]:
    """Let `act` try every task, two at a time; return what it found wrong, by template."""
    wrong: dict[str, str] = {}
    free = asyncio.Semaphore(IN_FLIGHT)

    async def one(client: Client, name: str) -> None:
        async with free:
            env = await client.make("browser", "{}")
            if problem := await act(env, name):
                wrong[name] = problem
            await env.close()

    async with Client(address) as client, asyncio.TaskGroup() as group:
        for name in TASKS:
            group.create_task(one(client, name))
    return wrong


async def test_the_oracle_scores_one_and_its_turns_can_be_replayed(address: str) -> None:
    async def solve(env: AsyncEnv, name: str) -> str:
        first, _, _ = await env.reset(TASKS[name], 0)
        split, _, index = TASKS[name].partition("/")
        oracle = ENV.oracle(PARAMS, SOURCE.get(split, int(index)))
        observation, prefix = first, []
        while True:
            action = oracle(observation)
            result = await env.step(action)
            observation = result.observation
            if result.info:
                return f"{action} -> {result.info}: {observation}"
            if result.terminated:
                break
            prefix.append((action, observation_hash(observation)))
        verdict = await env.evaluate()
        if (verdict.reward, verdict.passed) != (1.0, True):
            return f"{verdict} {observation}"
        again, _, _ = await env.reset(TASKS[name], 1, prefix, initial_hash=observation_hash(first))
        return "" if observation_hash(again) == prefix[-1][1] else again

    assert await each_task(address, solve) == {}


async def test_doing_nothing_scores_zero(address: str) -> None:
    async def nothing(env: AsyncEnv, name: str) -> str:
        await env.reset(TASKS[name], 0)
        verdict = await env.evaluate()
        return "" if verdict == Verdict(0.0, False, verdict.details) else f"{verdict}"

    assert await each_task(address, nothing) == {}


async def test_a_replay_that_differs_is_refused(address: str) -> None:
    async with Client(address) as client:
        env = await client.make("browser", "{}")
        first, _, _ = await env.reset(TASKS["wiki-mayor"], 0)
        with pytest.raises(ResetDivergence):
            await env.reset(TASKS["wiki-mayor"], 0, [("go_back()", observation_hash(first + "other"))])
        await env.close()


async def test_nothing_of_an_episode_is_left_in_the_next(address: str) -> None:
    async with Client(address) as client:
        env = await client.make("browser", "{}")
        first, _, _ = await env.reset(TASKS["mail-reply"], 0)
        await env.step('goto("http://mail.test/compose")')
        await env.step("new_tab()")
        await env.step('on_dialog("accept")')
        used = await env.step("tab_focus(0)")
        assert "Tab 1" in used.observation
        again, _, _ = await env.reset(TASKS["mail-reply"], 0)
        assert again == first
        back = await env.step("go_back()")
        assert "compose" not in back.observation
        await env.close()


async def test_a_browser_out_of_the_pool_shows_what_a_cold_one_does_and_is_used_once() -> None:
    assert ENV.sandbox is not None
    with start_embedded(["--env=sandboxes.browser:ENV"]) as server:
        async with Client(server.address) as client, PlacesClient(server.address) as places:
            env = await client.make("browser", "{}")
            cold = [(await env.reset(TASKS["mail-reply"], 0))[0]]
            cold.append((await env.step('goto("http://mail.test/compose")')).observation)
            await places.set_pool(ENV.sandbox, 2)
            for hits in (1, 2):
                for _ in range(1200):
                    if (await places.pools())[0].ready:
                        break
                    await asyncio.sleep(0.1)
                warm = [(await env.reset(TASKS["mail-reply"], 0))[0]]
                warm.append((await env.step('goto("http://mail.test/compose")')).observation)
                assert warm == cold
                assert (await places.pools())[0].hits == hits
            await env.close()


def test_a_player_gets_a_picture_of_each_observation(tmp_path: Path) -> None:
    words = ["env", "play", "browser", "--task", TASKS["mail-reply"], "--pictures", str(tmp_path / "shots")]
    typed = 'hello\ngoto("http://mail.test/compose")\nsend_msg_to_user("done")\n'
    done = subprocess.run(
        [sys.executable, "-m", "ale", *words],
        input=typed,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "not passed after 3 turns" in done.stdout
    first, *others = [path.read_bytes() for path in sorted((tmp_path / "shots").iterdir())]
    assert first.startswith(b"\x89PNG\r\n")
    assert len(others) == 2
    assert others[0] != first, "another page"
    assert others[1] == others[0], "a word to the user changes nothing"


async def test_bad_actions_get_one_error_each_and_cost_a_turn(address: str) -> None:
    async with Client(address) as client:
        env = await client.make("browser", '{"max_turns": 8}')
        await env.reset(TASKS["stock-delete"], 0)
        for action, error in (
            ("import os", "Error: not an action"),
            ('click("e9999")', "no element 'e9999' in this page"),
            ('goto("file:///etc/passwd")', "is not of this site"),
            ('goto("view-source:http://stock.test/")', "is not of this site"),
            ('goto("http://stock.test.example.com/")', "is not of this site"),
            ('fill("e2", "x")', "it is no field that takes text"),
            ("tab_close()", "this is the only tab"),
        ):
            result = await env.step(action)
            assert result.observation.count("Error: ") == 1
            assert error in result.observation
            assert result.info in ({"illegal": True}, {"tool_failed": True})
            assert not result.truncated
        assert (await env.step("noop()")).truncated
        await env.close()
