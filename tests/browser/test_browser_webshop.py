"""The webshop through Chromium: the decisions of the text mode, clicked, are worth the same."""

from __future__ import annotations

import pytest
from browser.webshop_clicks import PARAMS, clicked, decided

from rock_env.backends.process.backend import ProcessBackend
from rock_env.sandbox import Sandbox
from sandboxes.browser import ENV, webshop
from sandboxes.browser.env import BrowserEnv
from sandboxes.browser.params import BrowserParams

pytestmark = pytest.mark.timeout(600)


async def test_lists_of_decisions_are_worth_what_they_are_as_text(backend: ProcessBackend) -> None:
    assert ENV.sandbox is not None
    expected, rewards = [], []
    for index in range(6):
        actions, worth = decided(index)
        box = await backend.create(ENV.sandbox, sandbox_id=f"list-{index}")
        rewards.append((await clicked(box, ENV.tasks(PARAMS).get("train", index), actions))[0])
        expected.append(worth)
        await box.close()
    assert rewards == expected
    assert len(set(rewards)) > 1


async def test_the_oracle_buys_what_is_wanted(box: Sandbox) -> None:
    params = BrowserParams(suite="webshop")
    task = ENV.tasks(params).get("held_out", 3)
    env, oracle = BrowserEnv(params), ENV.oracle(params, task)
    seen, _ = await env.reset(box, task, 0)
    assert webshop.goal_text(webshop.source().get("held_out", 3)) in task.instruction
    for _ in range(params.max_turns):
        result = await env.step(box, oracle(seen))
        assert not result.info, result
        seen = result.observation
        if result.terminated:
            break
    verdict = await env.evaluate(box)
    assert (verdict.reward, verdict.passed) == (1.0, True), verdict


async def test_nothing_bought_is_worth_nothing(box: Sandbox) -> None:
    params = BrowserParams(suite="webshop")
    env = BrowserEnv(params)
    await env.reset(box, ENV.tasks(params).get("train", 0), 0)
    verdict = await env.evaluate(box)
    assert verdict.reward == 0.0
    assert "nothing bought" in verdict.details
