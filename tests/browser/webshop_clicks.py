"""The webshop through Chromium: lists of decisions of the text mode, clicked, beside what they are worth there.

Every other list is the oracle's and the rest random (`webshop_referee`): a search is typed and sent, a name is clicked where
the page has it. Used by `benchmarks.browser`, whose part `webshop` it is, and by tests.
"""

from __future__ import annotations

from typing import Any

from webshop_decisions import list_of_decisions

from benchmarks.scaffold import say
from rock_env.sandbox import Sandbox
from rock_env.spec import TaskSpec
from sandboxes.browser import ENV, webshop
from sandboxes.browser.oracle import written
from sandboxes.browser.params import BrowserParams
from sandboxes.browser.scenario import On

PARAMS = BrowserParams(suite="webshop", max_turns=100)


def decided(index: int) -> tuple[list[str], float]:
    """Return list `index` of decisions in the text mode, and what it is worth there."""
    return list_of_decisions(webshop.PARAMS, index)


async def clicked(box: Sandbox, task: TaskSpec, actions: list[str]) -> tuple[float, int]:
    """Click a list through the browser of a box; return its reward, and how many actions reached the browser."""
    env: Any = ENV.factory(PARAMS)
    seen, _ = await env.reset(box, task, 0)
    reached = 0
    for action in actions:
        for step in webshop.clicks(action):
            assert isinstance(step, On)  # each is on an element
            does = written(step, seen)
            if does == "noop()":  # there is no such thing on this page, as in the text mode
                break
            result = await env.step(box, does)
            if result.info:
                raise RuntimeError(f"{does} -> {dict(result.info)}: {result.observation}")
            seen, reached = result.observation, reached + 1
    return float((await env.evaluate(box)).reward), reached


async def compare(backend: Any, first: int, lists: int) -> dict[str, float]:
    """Click lists one after the other, each in a box of its own; each mismatch is printed with its number."""
    mismatches = purchases = clicks = 0
    rewards = set()
    for index in range(first, first + lists):
        actions, expected = decided(index)
        box = await backend.create(ENV.sandbox, sandbox_id=f"clicks-{index}")
        try:
            reward, reached = await clicked(box, ENV.tasks(PARAMS).get("train", index), actions)
        finally:
            await box.close()
        if reward != expected:
            mismatches += 1
            say(f"list {index}: {reward} in the browser, {expected} as text: {actions}")
        purchases += "click[buy now]" in actions
        clicks += reached
        rewards.add(expected)
    return {
        "first": first,
        "lists": lists,
        "mismatches": mismatches,
        "purchases": purchases,
        "rewards": len(rewards),
        "clicks": clicks,
    }
