"""Parts of `benchmarks.browser` beside its figures: episodes side by side, many in a row, with jitter, and of chance."""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
from random import Random
from statistics import median
from time import perf_counter
from typing import Any

from rock_env.env import Oracle
from rock_env.sandbox import Sandbox
from rock_env.spec import EnvParams, TaskSpec
from sandboxes.browser import ENV
from sandboxes.browser.catalog import TEMPLATES

__all__ = [
    "JITTER",
    "KINDS",
    "Backend",
    "RandomPolicy",
    "jitter",
    "many",
    "play",
    "random_rates",
    "side_by_side",
]

JITTER = """
import os, pathlib, random, signal, sys, time
chance = random.Random(int(sys.argv[1]))
while True:
    there = [int(each.name) for each in pathlib.Path('/proc').glob('[0-9]*')]
    victim = chance.choice(sorted(set(there) - {1, os.getpid()}))
    try:
        os.kill(victim, signal.SIGSTOP)
        time.sleep(chance.uniform(0, 0.3))
        os.kill(victim, signal.SIGCONT)
    except ProcessLookupError:
        pass
"""
"""A program for the box: processes stand still for 0 to 300 ms, one after the other, at moments of chance."""
KINDS = {
    split: [each.name for each in TEMPLATES.values() if each.split == split]
    for split in ("train", "held_out")
}
MOST_TURNS = 30
Backend = Any
"""What makes boxes: has `create(spec, sandbox_id=…)`."""
_ELEMENT = re.compile(r'^\s*\[((?:f\d+)?e\d+)\] ([\w-]+)(?: "((?:[^"\\]|\\.)*)")?', re.MULTILINE)
_OPTION = re.compile(r'option "((?:[^"\\]|\\.)*)"')
_WORD = re.compile(r"[A-Za-z0-9@.-]{2,}")
_FIELDS = ("textbox", "searchbox", "spinbutton")
_CLICKED = ("button", "link", "checkbox", "radio", "option", "tab", "menuitem")


def task_number(number: int) -> TaskSpec:
    """Return a task of the sites: numbers go through all kinds, then through their variants."""
    kinds = sum(map(len, KINDS.values()))
    variant, kind = divmod(number, kinds)
    split, place = ("train", kind) if kind < len(KINDS["train"]) else ("held_out", kind - len(KINDS["train"]))
    source = ENV.tasks(ENV.params())
    return source.get(split, (variant * len(KINDS[split]) + place) % source.count(split))


async def play(
    box: Sandbox, params: EnvParams, task: TaskSpec, policy: Oracle, seed: int = 0
) -> tuple[list[str], float, bool]:
    """Play a task; return what was observed, the seconds of all steps, and whether it passed. A seed brings jitter."""
    env: Any = ENV.factory(params)
    observation, _ = await env.reset(box, task, 0)
    if seed:
        await box.start_process(["python3", "-c", JITTER, str(seed)])
    seen, began = [observation], perf_counter()
    for _ in range(MOST_TURNS):
        result = await env.step(box, policy(seen[-1]))
        if result.terminated:
            break
        seen.append(result.observation)
    spent = perf_counter() - began
    return seen, spent, (await env.evaluate(box)).passed


async def _solved(backend: Backend, number: int, seed: int = 0) -> tuple[list[str], float, bool]:
    """Let the reference policy play task `number` in a box of its own."""
    params, task = ENV.params(), task_number(number)
    box = await backend.create(ENV.sandbox, sandbox_id=f"part-{number}-{seed}")
    try:
        return await play(box, params, task, ENV.oracle(params, task), seed)
    finally:
        await box.close()


async def side_by_side(backend: Backend, first: int, count: int) -> dict[str, float]:
    """Play `count` episodes at the same time."""
    began = perf_counter()
    played = await asyncio.gather(*(_solved(backend, first + number) for number in range(count)))
    return {
        "side_by_side": count,
        "unsolved": sum(not passed for _, _, passed in played),
        "all_s": round(perf_counter() - began, 2),
        "step_p50_ms": round(median(spent / max(1, len(seen)) for seen, spent, _ in played) * 1000, 1),
    }


async def many(backend: Backend, first: int, count: int) -> dict[str, float]:
    """Play `count` episodes one after the other."""
    began, unsolved = perf_counter(), 0
    for number in range(first, first + count):
        unsolved += not (await _solved(backend, number))[2]
    return {
        "first": first,
        "episodes": count,
        "unsolved": unsolved,
        "episode_s": round((perf_counter() - began) / count, 2),
    }


async def jitter(backend: Backend, first: int, count: int) -> dict[str, float]:
    """Play `count` episodes with and without jitter, and count those in which an observation differs."""
    different = unsolved = turns = 0
    for number in range(first, first + count):
        calm, _, _ = await _solved(backend, number)
        shaken, _, passed = await _solved(backend, number, seed=number + 1)
        different += _hash(calm) != _hash(shaken)
        unsolved += not passed
        turns += len(calm)
    return {
        "first": first,
        "episodes": count,
        "different": different,
        "unsolved": unsolved,
        "observations": turns,
    }


def _hash(seen: list[str]) -> bytes:
    return hashlib.blake2b("\0".join(seen).encode()).digest()


class RandomPolicy:
    """Does anything to any element, with words of the task or the page, and says one of them in the end."""

    def __init__(self, task: TaskSpec, seed: int) -> None:
        self._chance = Random(seed)
        self._wanted = _WORD.findall(task.instruction.partition("The task:")[2])

    def __call__(self, observation: str) -> str:
        """Return an action; one in fifteen ends the episode."""
        chance = self._chance
        words = [*self._wanted, *_WORD.findall(observation)] or ["done"]
        found = [
            each for each in _ELEMENT.findall(observation) if each[1] in (*_FIELDS, *_CLICKED, "combobox")
        ]
        if not found or chance.random() < 1 / 15:
            return f'send_msg_to_user("{chance.choice(words)}")'
        bid, role, _ = chance.choice(found)
        if role in _FIELDS:
            return f'fill("{bid}", "{chance.choice(words)}")'
        if role == "combobox":
            options = _OPTION.findall(observation) or words
            return f'select_option("{bid}", "{chance.choice(options)}")'
        return f'click("{bid}")'


async def random_rates(backend: Backend, first: int, count: int) -> dict[str, float]:
    """Let chance play `count` variants of each kind of task at the sites; return the highest rate of passes of a kind."""
    rates: dict[str, float] = {}
    params = ENV.params()
    for kind in range(sum(map(len, KINDS.values()))):
        passed = 0
        for variant in range(first, first + count):
            task = task_number(variant * sum(map(len, KINDS.values())) + kind)
            box = await backend.create(ENV.sandbox, sandbox_id=f"random-{kind}-{variant}")
            try:
                passed += (await play(box, params, task, RandomPolicy(task, variant)))[2]
            finally:
                await box.close()
        rates[task.payload.partition("/")[0]] = passed / count
        if passed:
            sys.stdout.write(f"{task.payload.partition('/')[0]}: {passed} of {count} by chance\n")
    return {"kinds": len(rates), "episodes": count * len(rates), "highest_random_rate": max(rates.values())}
