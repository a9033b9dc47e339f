"""The webshop through a real browser: `python -m benchmarks.webshop_clicks [--first N] [--lists M]`.

Plays lists of decisions of the text mode, every other one the oracle's and the rest random (`webshop_referee`), and clicks
each through Chromium at the site in a box: a search is typed and sent, a name is clicked where the page has it. Both must
end with the same reward. The last line is one JSON object:

- `lists`, `first`: how many lists, and the number of the first;
- `mismatches`: lists whose reward is not the text mode's (goal: 0 of 500); each is printed with its number before;
- `purchases`: lists that bought something; `rewards`: how many different rewards there were;
- `clicks`: actions that reached the browser.
"""

from __future__ import annotations

import asyncio
import sys
from random import Random
from typing import Any

from webshop_referee import random_action

from benchmarks.scaffold import finish, parser_of
from rock_env.backends.pool import PooledBackend
from rock_env.backends.process.backend import ProcessBackend
from rock_env.sandbox import Sandbox
from rock_env.spec import TaskSpec
from sandboxes.browser import ENV, webshop
from sandboxes.browser.oracle import written
from sandboxes.browser.params import BrowserParams
from sandboxes.browser.scenario import On
from sandboxes.webshop import ENV as TEXT
from sandboxes.webshop.oracle import plan
from sandboxes.webshop.product import goal_of

PARAMS = BrowserParams(suite="webshop", max_turns=100)
STOCK = 2
"""Boxes kept ready."""


def decided(index: int) -> tuple[list[str], float]:
    """Return list `index` of decisions in the text mode, and what it is worth there."""
    task = webshop.source().get("train", index)
    env: Any = TEXT.factory(webshop.PARAMS)
    goal, chance = goal_of(task.payload), Random(index)
    planned = iter([action for _, action in plan(webshop.PARAMS, goal).steps] if index % 2 else ())
    page, _ = env.reset(task, 0)
    actions: list[str] = []
    over = False
    while not over:
        actions.append(next(planned, "") or random_action(chance, page, task.payload))
        result = env.step(actions[-1])
        page, over = result.observation, result.terminated or result.truncated
    return actions, float(env.evaluate().reward)


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


async def compare(first: int, lists: int) -> dict[str, int]:
    """Click lists one after the other, each in a box of its own out of a warm pool."""
    assert ENV.sandbox is not None
    pool = PooledBackend(ProcessBackend(python_packages=("playwright",)))
    pool.set_target(ENV.sandbox, STOCK)
    mismatches = purchases = clicks = 0
    rewards = set()
    try:
        for index in range(first, first + lists):
            actions, expected = decided(index)
            task = ENV.tasks(PARAMS).get("train", index)
            box = await pool.create(ENV.sandbox, sandbox_id=f"clicks-{index}")
            try:
                reward, reached = await clicked(box, task, actions)
            finally:
                await box.close()
            if reward != expected:
                mismatches += 1
                print(f"list {index}: {reward} in the browser, {expected} as text: {actions}")
            purchases += "click[buy now]" in actions
            clicks += reached
            rewards.add(expected)
    finally:
        await pool.close()
    return {
        "first": first,
        "lists": lists,
        "mismatches": mismatches,
        "purchases": purchases,
        "rewards": len(rewards),
        "clicks": clicks,
    }


def main() -> int:
    """Compare and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--first", type=int, default=0, help="number of the first list")
    parser.add_argument("--lists", type=int, default=500, help="how many lists")
    asked = parser.parse_args()
    result = asyncio.run(compare(asked.first, asked.lists))
    return finish(result, bad=result["mismatches"])


if __name__ == "__main__":
    sys.exit(main())
