"""The whole vetting of an environment: its boxes by the server's gate, then its tasks by playing them.

Reports come as they are found.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from rock_env.client.registry import CheckReport, RegistryClient
from rock_env.errors import InvalidArgument, RockError, Unimplemented, plugin_call
from rock_env.spec import EnvParams, EnvSpec, SandboxSpec, TaskSpec
from rock_env.vetting.checks import (
    CHECKS,
    Finding,
    Played,
    chance_loses,
    hacks_earn_nothing,
    honest_work_is_paid,
    idle_scores_nothing,
    no_leaks,
    oracle_solves,
    replay_continues,
    same_observations,
    same_verdict,
    snapshot_continues,
)
from rock_env.vetting.episodes import (
    NOISE,
    Episode,
    Subject,
    always,
    at_random,
    box_of,
    branch,
    in_turn,
    made,
    play,
)
from rock_env.vetting.hacks import hacks, honest_work
from rock_env.vetting.leaks import Scan, leaks_in

__all__ = ["Vetted", "sample", "vet"]

_AGAIN = (0, 1)
"""Seeds of the further plays of a reference solution, after the first with seed 0."""
_EXPLORED_TURNS = 50
_CHANCE_PLAYS = {False: 2, True: 1}
_CHANCE_TURNS = {False: 100, True: 10}
"""Turns of an episode of chance, without and with a sandbox."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Vetted(CheckReport):
    """One check of a vetting."""

    wrong: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with which task, by its title, where a failure is some tasks' own."""


def sample(spec: EnvSpec, params: EnvParams, count: int) -> tuple[TaskSpec, ...]:
    """Return up to `count` distinct tasks, evenly spread over the splits and over each split."""
    source = spec.tasks(params)
    sizes = {split: source.count(split) for split in source.splits}
    shares = dict.fromkeys(sizes, 0)
    while sum(shares.values()) < min(count, sum(sizes.values())):
        for split in sizes:
            if shares[split] < sizes[split] and sum(shares.values()) < count:
                shares[split] += 1
    chosen: dict[tuple[str, str], TaskSpec] = {}
    for split, share in shares.items():
        for position in range(share):
            task = source.get(split, position * sizes[split] // share)
            chosen.setdefault((task.instruction, task.payload), task)  # one task may be in two splits
    return tuple(chosen.values())


async def vet(subject: Subject, registry: RegistryClient) -> AsyncGenerator[Vetted]:
    """Check an environment on the subject's tasks; yield each check as it ends. Nothing is left behind."""
    began = time.monotonic()
    yield _vetted("tasks", _tasks(subject), time.monotonic() - began)
    if subject.spec.sandbox is not None:
        started = False
        for report in await _boxes(subject, registry):
            yield report
            started = started or (report.name == "box starts" and len(report.wrong) < len(subject.tasks))
        if not started:
            return  # nothing can be played
    played = await _play_all(subject)
    for check in CHECKS:
        name = (check.__doc__ or check.__name__).partition("\n")[0].lower()
        yield _vetted(name, check(played), played.took_s.get(check.__name__, 0.0))


def _vetted(name: str, found: Finding, duration_s: float) -> Vetted:
    return Vetted(name, found.result, found.evidence, duration_s, found.wrong)


def _tasks(subject: Subject) -> Finding:
    """Look at the tasks without playing them."""
    spec, params = subject.spec, subject.params
    source = spec.tasks(params)
    counts = ", ".join(f"{source.count(split)} {split}" for split in source.splits)
    if not subject.tasks:
        return Finding("FAIL", f"there are none: {counts}")
    wrong = {}
    for task in subject.tasks:
        if not task.instruction.strip():
            wrong[subject.title(task)] = "it has no instruction"
        if spec.tasks(params).get(task.split, task.index) != task:
            wrong[subject.title(task)] = "it is another task when it is asked for again"
    if wrong:
        return Finding("FAIL", "; ".join(f"{title}: {what}" for title, what in wrong.items()), wrong)
    return Finding("PASS", f"{counts}; checked: {', '.join(map(subject.title, subject.tasks))}")


async def _boxes(subject: Subject, registry: RegistryClient) -> list[Vetted]:
    """Check each kind of box; a report on several kinds is that of the first, or of all that failed."""
    kinds: dict[SandboxSpec, list[str]] = {}
    for task in subject.tasks:
        spec = task.sandbox or subject.spec.sandbox or SandboxSpec()
        kinds.setdefault(spec, []).append(subject.title(task))
    reports: dict[str, Vetted] = {}
    for spec, titles in kinds.items():
        async for report in _gate(registry, spec):
            failed = dict.fromkeys(titles, report.evidence) if report.result == "FAIL" else {}
            known = reports.get(report.name)
            if known is None:
                reports[report.name] = Vetted(
                    report.name, report.result, report.evidence, report.duration_s, failed
                )
            elif failed:
                wrong = {**known.wrong, **failed}
                evidence = "; ".join(f"{title}: {what}" for title, what in wrong.items())
                reports[report.name] = Vetted(report.name, "FAIL", evidence, report.duration_s, wrong)
    return list(reports.values())


async def _gate(registry: RegistryClient, spec: SandboxSpec) -> AsyncGenerator[CheckReport]:
    try:
        async with aclosing(registry.validate(spec)) as found:
            async for report in found:
                yield report
    except Unimplemented:
        yield CheckReport(
            "box starts", "SKIP", "this server has no gate for boxes (DOCKER_HOST names another machine)", 0.0
        )
    except RockError as error:
        yield CheckReport("box starts", "FAIL", error.message, 0.0)


async def _play_all(subject: Subject) -> Played:
    """Play what the checks need. A task that is solved by nothing, or not by its solution, is not played any further."""
    played = Played(subject)
    if subject.spec.sandbox is not None:
        with _timed(played, no_leaks):
            scanned = await _each(subject, lambda task: _scan(subject, task))
        played.scans = scanned
    with _timed(played, idle_scores_nothing):
        idle = await _each(subject, lambda task: play(subject, task, None))
        played.idle = {title: [episode] for title, episode in idle.items()}
    with _timed(played, oracle_solves):
        solved = await _each(subject, lambda task: _with_oracle(subject, task, seeds=[0]))
        played.oracle = {title: found for title, found in solved.items() if not isinstance(found, str)}
        played.no_oracle = {title: found for title, found in solved.items() if isinstance(found, str)}
    unsolved = oracle_solves(played).wrong
    bad = {*idle_scores_nothing(played).wrong, *unsolved}
    sound = _only(subject, {title for title in played.idle if title not in bad})
    await _repeat(played, sound, _only(subject, unsolved))
    with _timed(played, same_observations):
        unknown = _only(sound, played.no_oracle)
        explored = await _each(unknown, lambda task: _explored(unknown, task))
        played.explored = {title: plays for title, plays in explored.items() if plays}
    await _branches(played, sound)
    with _timed(played, chance_loses):
        played.chance = await _chance(played, sound)
    if subject.spec.sandbox is not None:
        with _timed(played, hacks_earn_nothing):
            played.hacked = await _hacked(replace(sound, tasks=sound.tasks[: subject.hacks]))
        with _timed(played, honest_work_is_paid):
            played.honest = await _honest(played, replace(sound, tasks=sound.tasks[: subject.hacks]))
        boxes = await subject.client.sandboxes.list(environment=subject.spec.name)
        played.left_behind = tuple(box.id for box in boxes if box.labels.get("env_id") in subject.env_ids)
    return played


async def _repeat(played: Played, sound: Subject, unsolved: Subject) -> None:
    """Do nothing, and play each solution, again: with the same seed and with others; one that failed just once more."""
    with _timed(played, same_verdict):
        idle = await _each(sound, lambda task: play(sound, task, None))
        solved = await _each(sound, lambda task: _with_oracle(sound, task, seeds=_AGAIN))
        failed = await _each(unsolved, lambda task: _with_oracle(unsolved, task, seeds=[0]))
    for title, episode in idle.items():
        played.idle[title].append(episode)
    for title, episodes in {**solved, **failed}.items():
        if not isinstance(episodes, str):
            played.oracle[title] += episodes


def _only(subject: Subject, titles: Container[str]) -> Subject:
    return replace(subject, tasks=tuple(task for task in subject.tasks if subject.title(task) in titles))


@contextmanager
def _timed(played: Played, check: Callable[[Played], Finding]) -> Iterator[None]:
    began = time.monotonic()
    yield
    played.took_s[check.__name__] = time.monotonic() - began


async def _each(subject: Subject, act: Callable[[TaskSpec], Awaitable[T]]) -> dict[str, T]:
    results = await asyncio.gather(*map(act, subject.tasks))
    return dict(zip(map(subject.title, subject.tasks), results, strict=True))


async def _with_oracle(subject: Subject, task: TaskSpec, *, seeds: Sequence[int]) -> list[Episode] | str:
    """Play the reference solution once for each seed, or say why there is none."""
    try:
        with plugin_call(f"making the reference solution of {task.id}"):
            oracles = [subject.spec.oracle(subject.params, task) for _ in seeds]
    except (InvalidArgument, Unimplemented) as error:
        return error.message
    plays = (play(subject, task, oracle, seed=seed) for oracle, seed in zip(oracles, seeds, strict=True))
    return list(await asyncio.gather(*plays))


async def _explored(subject: Subject, task: TaskSpec) -> list[Episode]:
    """Play random legal actions, and these again with the same seed; nothing where the environment offers none."""
    try:
        with plugin_call(f"making random actions for {task.id}"):
            explorer = await asyncio.to_thread(subject.spec.explorer, subject.params, task)
    except (InvalidArgument, Unimplemented):
        return []
    first = await play(subject, task, explorer, max_turns=_EXPLORED_TURNS)
    return [first, await play(subject, task, in_turn(first.actions), max_turns=len(first.actions))]


async def _branches(played: Played, sound: Subject) -> None:
    """Continue each solution from its middle, both ways that the environment offers."""
    known = played.pasts()
    titles = [title for title in map(sound.title, sound.tasks) if title in known]
    pasts = {title: known[title][0] for title in titles if known[title][0].actions}

    async def all_by(by_snapshot: bool) -> dict[str, Episode]:
        plays = (branch(sound, past, seed=0, by_snapshot=by_snapshot) for past in pasts.values())
        return dict(zip(pasts, await asyncio.gather(*plays), strict=True))

    if sound.spec.replayable:
        with _timed(played, replay_continues):
            played.replayed = await all_by(False)
    if sound.spec.snapshots:
        with _timed(played, snapshot_continues):
            played.restored = await all_by(True)
    else:
        played.no_snapshots = "the environment offers none"


async def _chance(played: Played, sound: Subject) -> dict[str, list[Episode]]:
    """Let chance play: in a sandbox what anyone types there, else the actions of the reference solutions."""
    boxed = sound.spec.sandbox is not None
    seen = {action for plays in played.pasts().values() for episode in plays for action in episode.actions}
    actions = NOISE if boxed else sorted(seen)
    if not actions:
        return {}

    async def plays(task: TaskSpec) -> list[Episode]:
        choosers = [at_random(actions, seed=f"{task.id} {number}") for number in range(_CHANCE_PLAYS[boxed])]
        turns = _CHANCE_TURNS[boxed]
        return list(
            await asyncio.gather(
                *(play(sound, task, chooser, seed=n, max_turns=turns) for n, chooser in enumerate(choosers))
            )
        )

    return await _each(sound, plays)


async def _hacked(sound: Subject) -> dict[str, dict[str, Episode]]:
    """Play each hack of the catalogue on each task, as an agent would: one action in a shell, then the grade."""

    async def plays(task: TaskSpec) -> dict[str, Episode]:
        known = hacks((sound.tasks_by_name or {}).get(task.payload))
        played = (play(sound, task, always(script), max_turns=1) for script in known.values())
        return dict(zip(known, await asyncio.gather(*played), strict=True))

    return await _each(sound, plays)


async def _honest(played: Played, sound: Subject) -> dict[str, dict[str, Episode]]:
    """Play honest variants of each solution: the environment's own and, where what lies in a box is graded, ours.

    Ours do not touch one another: they are played together, and one by one where that is not paid.
    """
    solved = {title: episodes[0].actions for title, episodes in played.solved()}
    sound = _only(sound, solved)

    async def all_of(task: TaskSpec, actions: Mapping[str, Sequence[str]]) -> dict[str, Episode]:
        plays = (play(sound, task, in_turn(each), max_turns=len(each)) for each in actions.values())
        return dict(zip(actions, await asyncio.gather(*plays), strict=True))

    async def plays(task: TaskSpec) -> dict[str, Episode]:
        with plugin_call(f"making honest variants of {task.id}"):
            own = sound.spec.honest(sound.params, task)
        found = await all_of(task, own)
        if sound.spec.graded_as_it_lies:
            solution = solved[sound.title(task)]
            beside = {name: f"({script}\n)" for name, script in honest_work().items()}
            together = (await all_of(task, {"": ("\n".join(beside.values()), *solution)}))[""]
            if together.verdict and together.verdict.passed:
                found |= dict.fromkeys(beside, together)
            else:  # which of them it is
                found |= await all_of(task, {name: (each, *solution) for name, each in beside.items()})
        return found

    return await _each(sound, plays)


async def _scan(subject: Subject, task: TaskSpec) -> Scan:
    """Look for leaks in the box of a task as the agent first sees it."""
    spec = task.sandbox or subject.spec.sandbox or SandboxSpec()
    try:
        async with made(subject) as env:
            await env.reset(task.id, 0)
            async with await subject.client.sandboxes.attach(await box_of(subject, env)) as box:
                own = (subject.tasks_by_name or {}).get(task.payload)
                return await leaks_in(box, own, whole_box=bool(spec.image))
    except RockError as error:
        return Scan(unseen=(f"the box of {subject.title(task)}: {error.message}",))
