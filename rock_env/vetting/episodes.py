"""Episodes as vetting plays them: by a reference solution, by chance, or not at all, each to a record.

Used by the checks. It plays through a client as a trainer does; what fails on the way is said in the record.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from rock_env.client import Client
from rock_env.client.env import AsyncEnv
from rock_env.env import Verdict, observation_hash
from rock_env.errors import NotFound, RockError, plugin_call
from rock_env.grading.model import Task
from rock_env.spec import EnvParams, EnvSpec, TaskSpec

__all__ = [
    "NOISE",
    "Chooser",
    "Episode",
    "Subject",
    "always",
    "at_random",
    "box_of",
    "branch",
    "in_turn",
    "made",
    "play",
]

AT_ONCE = 4
"""Episodes played at the same time: their boxes should not slow one another to their time-outs."""
MAX_TURNS = 1000
NOISE = (
    "ls -la",
    "pwd",
    "true",
    "cat *",
    "cd ..",
    "echo hello > note.txt",
    "touch done",
    "qwertz uiop",
    "submit",
)
"""What an agent without an idea does in a shell. Nothing that waits for a terminal."""

Chooser = Callable[[str], str]
"""From an observation to the next action."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is vetted: an environment with its arguments, some of its tasks, and the service that plays it."""

    client: Client
    spec: EnvSpec
    params: EnvParams
    tasks: tuple[TaskSpec, ...]
    tasks_by_name: Mapping[str, Task] | None = None
    """By their payload, of an environment made of tasks: with grader and solution, which no agent may find."""
    hacks: int = 0
    """On so many tasks that are sound the whole catalogue of hacks is played."""
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    env_ids: set[str] = field(default_factory=set)
    """Of every environment that was made for the vetting."""

    def title(self, task: TaskSpec) -> str:
        """Return what a task is called in the report."""
        return f"{task.payload} ({task.id})" if self.tasks_by_name else task.id

    def certain(self, task: TaskSpec) -> bool:
        """Return whether the reference solution succeeds always, rather than with luck."""
        return self.spec.optimum(self.params, task) > 1 - 1e-9


@dataclass(frozen=True, slots=True)
class Episode:
    """One episode. `problem` is why it could not be played to its grade; empty where it was."""

    task_id: str
    first: str = ""
    actions: tuple[str, ...] = ()
    observations: tuple[str, ...] = ()
    """After each action."""
    step_s: tuple[float, ...] = ()
    refused: str = ""
    """The first action that was illegal."""
    over: bool = False
    verdict: Verdict | None = None
    problem: str = ""


@asynccontextmanager
async def made(subject: Subject) -> AsyncIterator[AsyncEnv]:
    """Yield an environment, and close it whatever happens."""
    async with subject.gate:
        env = await subject.client.make(subject.spec.name, subject.params.canonical())
        subject.env_ids.add(env.env_id)
        try:
            yield env
        finally:
            await asyncio.shield(env.close())


async def play(
    subject: Subject, task: TaskSpec, choose: Chooser | None, *, seed: int = 0, max_turns: int = MAX_TURNS
) -> Episode:
    """Play one episode to its end or for `max_turns`, and have it graded; without a chooser nothing is done."""
    record = Episode(task.id)
    try:
        async with made(subject) as env:
            first, _, _ = await env.reset(task.id, seed)
            record = replace(record, first=first)
            if choose is not None:
                record = await _turns(env, record, choose, max_turns=max_turns)
            return replace(record, verdict=await env.evaluate())
    except RockError as error:
        return replace(record, problem=error.message)


async def _turns(env: AsyncEnv, record: Episode, choose: Chooser, *, max_turns: int) -> Episode:
    observation = record.first
    while not record.over and len(record.actions) < max_turns:
        with plugin_call("asking the reference solution"):
            action = await asyncio.to_thread(choose, observation)
        began = time.monotonic()
        result = await env.step(action)
        observation = result.observation
        record = replace(
            record,
            actions=(*record.actions, action),
            observations=(*record.observations, observation),
            step_s=(*record.step_s, time.monotonic() - began),
            refused=record.refused or (action if result.info.get("illegal") else ""),
            over=result.terminated or result.truncated,
        )
    return record


async def branch(subject: Subject, past: Episode, *, seed: int, by_snapshot: bool) -> Episode:
    """Play `past` again from its middle on: restored from a checkpoint made there, or replayed up to there."""
    half = len(past.actions) // 2
    record = Episode(past.task_id, past.first, past.actions[:half], past.observations[:half])
    hashes = map(observation_hash, past.observations)
    prefix = list(zip(past.actions[:half], hashes, strict=False))
    try:
        checkpoint = await _checkpoint(subject, past, seed=seed, turns=half) if by_snapshot else ""
        async with made(subject) as env:
            if by_snapshot:
                await env.restore(checkpoint)
            else:
                await env.reset(past.task_id, seed, prefix, initial_hash=observation_hash(past.first))
            record = await _turns(env, record, in_turn(past.actions[half:]), max_turns=len(past.actions))
            return replace(record, verdict=await env.evaluate())
    except RockError as error:
        return replace(record, problem=error.message)


async def _checkpoint(subject: Subject, past: Episode, *, seed: int, turns: int) -> str:
    async with made(subject) as env:
        await env.reset(past.task_id, seed)
        for action in past.actions[:turns]:
            await env.step(action)
        return await env.checkpoint()


def always(action: str) -> Chooser:
    """Return a chooser of one action, whatever is observed."""
    return lambda _: action


def in_turn(actions: Iterable[str]) -> Chooser:
    """Return a chooser of one action after the other, whatever is observed."""
    rest = iter(actions)
    return lambda _: next(rest)


def at_random(actions: Sequence[str], *, seed: str) -> Chooser:
    """Return a chooser that draws from `actions`."""
    rng = random.Random(seed)
    return lambda _: rng.choice(actions)


async def box_of(subject: Subject, env: AsyncEnv) -> str:
    """Return the id of the sandbox that an environment which was reset lives in. Raise `NotFound`."""
    found = await subject.client.sandboxes.list(labels={"env_id": env.env_id})
    if not found:
        raise NotFound(f"the environment {env.env_id} has no sandbox.")
    return found[0].id
