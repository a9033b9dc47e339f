"""The terminal environment in real sandboxes of a real server: all tasks are solvable, and not by shortcuts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest
from fences import why_not_isolated

from rock_env.client import Client
from rock_env.client.env import AsyncEnv
from rock_env.env import StepResult, Verdict, observation_hash
from rock_env.errors import ResetDivergence
from rock_env.local import start_embedded
from sandboxes.terminal.catalog import TEMPLATES, TerminalTasks, scenario
from sandboxes.terminal.params import TerminalParams

pytestmark = pytest.mark.timeout(300)
IN_FLIGHT = 6
PARTIAL = '{"partial": true}'


def _first_of_each() -> dict[str, str]:
    tasks, found = TerminalTasks(TerminalParams()), {}
    for split in tasks.splits:
        for index in range(len([None for template in TEMPLATES.values() if template.split == split])):
            found[tasks.get(split, index).payload.partition("/")[0]] = f"{split}/{index}"
    return found


TASKS = _first_of_each()
"""The first task of each template."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    if why := why_not_isolated():
        pytest.skip(f"tasks about processes need isolated sandboxes: {why}")
    with start_embedded(["--env=sandboxes.terminal:ENV"]) as server:
        yield server.address


async def play(env: AsyncEnv, actions: Sequence[str]) -> list[StepResult]:
    return [await env.step(action) for action in actions]


async def each_task(
    address: str, act: Callable[[AsyncEnv, str], Awaitable[str]], params: str = "{}"
) -> dict[str, str]:
    """Let `act` try every task, several at a time; return what it found wrong, by template."""
    wrong: dict[str, str] = {}
    free = asyncio.Semaphore(IN_FLIGHT)

    async def one(client: Client, name: str) -> None:
        async with free:
            env = await client.make("terminal", params)
            if problem := await act(env, name):
                wrong[name] = problem
            await env.close()

    async with Client(address) as client, asyncio.TaskGroup() as group:
        for name in TASKS:
            group.create_task(one(client, name))
    return wrong


async def test_doing_nothing_scores_zero(address: str) -> None:
    async def nothing(env: AsyncEnv, name: str) -> str:
        await env.reset(TASKS[name], 0)
        verdict = await env.evaluate()
        return f"{verdict}" if verdict != Verdict(0.0, False, verdict.details) else ""

    assert await each_task(address, nothing, PARTIAL) == {}, "also where there is partial credit"


async def test_the_oracle_scores_one_and_what_it_did_can_be_repeated(address: str) -> None:
    async def solve(env: AsyncEnv, name: str) -> str:
        first, info, instruction = await env.reset(TASKS[name], 0)
        drawn = scenario(f"{name}/0")
        assert info["task"] == f"{name}/0"
        assert instruction.endswith(drawn.goal)
        assert first.startswith("You are in the folder task. Its files:")
        results = await play(env, [*drawn.solution, "submit"])
        assert results[-1].terminated
        verdict = await env.evaluate()
        if (verdict.reward, verdict.passed) != (1.0, True) or any(result.info for result in results):
            return f"{verdict} {results}"
        prefix = [
            (action, observation_hash(result.observation))
            for action, result in zip(drawn.solution, results, strict=False)
        ]
        try:
            again, _, _ = await env.reset(TASKS[name], 1, prefix, initial_hash=observation_hash(first))
        except ResetDivergence as error:  # whose observations these are helps, and the hash alone does not
            return f"{error.message} {results}"
        return "" if again == results[-2].observation else again

    assert await each_task(address, solve) == {}


async def test_no_shortcut_scores(address: str) -> None:
    async def shortcut(env: AsyncEnv, name: str) -> str:
        for action in scenario(f"{name}/0").shortcuts:
            await env.reset(TASKS[name], 0)
            (result,) = await play(env, [action])
            verdict = await env.evaluate()
            if verdict.reward or result.info:
                return f"{action} -> {result.observation}: {verdict}"
        return ""

    assert await each_task(address, shortcut) == {}


async def test_what_an_agent_plants_forges_no_grade(address: str) -> None:
    name = "squash"
    drawn = scenario(f"{name}/0")
    plant = """bash cd */; for p in git python3 sitecustomize.py; do printf '#!/bin/sh\\necho forged; exit 0\\n' > $p; done
        chmod +x git python3; cp git python3 sitecustomize.py ~; cp git python3 sitecustomize.py ..
        git config core.fsmonitor $PWD/git; git config alias.log '!echo forged'; git config core.pager $PWD/git
        git config --global alias.rev-parse '!echo forged'; cp git .git/hooks/post-index-change
        git update-index --assume-unchanged *; (while :; do git status; done) > /dev/null 2>&1 &
        echo 'export PATH=.:$PATH' > ~/.bashrc"""
    async with Client(address) as client:
        env = await client.make("terminal")
        await env.reset(TASKS[name], 0)
        assert (await env.step(plant)).observation.startswith("[exit code 0]")
        verdict = await env.evaluate()
        assert (verdict.reward, verdict.passed) == (0.0, False)
        assert "log of main: its output is wrong" in verdict.details
        await env.reset(TASKS[name], 0)
        await play(env, drawn.solution)
        assert (await env.evaluate()).passed
        await env.step("bash cd ..; rm -rf *")
        verdict = await env.evaluate()
        assert (verdict.reward, verdict.passed) == (0.0, False)
        await env.close()


@pytest.mark.parametrize("name", ["rename-extension", "stop-worker"])
async def test_an_episode_goes_on_in_a_copy(address: str, name: str) -> None:
    """By a snapshot, or by the recorded actions where processes run."""
    *begin, last = scenario(f"{name}/0").solution
    async with Client(address) as client:
        env = await client.make("terminal", '{"command_timeout_s": 20}')
        await env.reset(TASKS[name], 0)
        shown = (await play(env, begin))[-1].observation
        checkpoint = await env.checkpoint()
        await env.step("bash kill -9 -1; rm -rf *")
        other = await env.again()
        again, _, _ = await other.restore(checkpoint)
        assert again == shown
        for end in (env, other):
            await end.step(last)
            assert (await end.evaluate()).passed == (end is other)
            await end.close()


async def test_turns_are_counted_and_bad_calls_told(address: str) -> None:
    async with Client(address) as client:
        env = await client.make("terminal", '{"max_turns": 4, "command_timeout_s": 4}')
        await env.reset("train/0", 0)
        empty, absent, slow, last = await play(env, ["", "view nothing", "bash sleep 9", "run_tests"])
        assert (empty.info, absent.info) == ({"illegal": True}, {"tool_failed": True})
        assert slow.observation == "[timed out after 4 s and was killed]"
        assert last.info == {"tool_failed": True}
        assert (slow.truncated, last.truncated, last.terminated) == (False, True, False)
        await env.close()
