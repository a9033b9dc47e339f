"""Lists of decisions in the webshop's text mode, half the oracle's and half of chance, and what each is worth."""

from __future__ import annotations

from random import Random
from typing import Any

from webshop_referee import random_action

from rock_env.spec import TaskSpec
from sandboxes.webshop import ENV
from sandboxes.webshop.oracle import plan
from sandboxes.webshop.params import WebshopParams
from sandboxes.webshop.product import goal_of

__all__ = ["decisions", "list_of_decisions"]


def decisions(params: WebshopParams, task: TaskSpec) -> list[str]:
    """Return the oracle's actions on a task."""
    return [action for _, action in plan(params, goal_of(task.payload)).steps]


def list_of_decisions(params: WebshopParams, index: int) -> tuple[list[str], float]:
    """Return list `index`, the oracle's where it is odd and else of chance, and its reward."""
    task = ENV.tasks(params).get("train", index)
    env: Any = ENV.factory(params)
    chance, planned = Random(index), iter(decisions(params, task) if index % 2 else ())
    page, _ = env.reset(task, 0)
    actions: list[str] = []
    over = False
    while not over:
        actions.append(next(planned, "") or random_action(chance, page, task.payload))
        result = env.step(actions[-1])
        page, over = result.observation, result.terminated or result.truncated
    return actions, float(env.evaluate().reward)
