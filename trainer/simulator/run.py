"""A simulated run: the scheduler, its queue, collector and journal as they are, and a learner that takes time.

`simulate` checks what the scheduler promises at every step, and goes on from its last checkpoint where it was killed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import mean

import numpy as np

from agent_runtime.types import Trajectory
from trainer.config import TrainConfig
from trainer.rollout.filling import newest_version
from trainer.scheduler.groups import StreamState
from trainer.scheduler.journal import JOURNAL, Journal, asked_for, audit, entries
from trainer.scheduler.outages import Outages, WaitingCalls
from trainer.scheduler.sampling import Batch
from trainer.scheduler.streaming import scheduler_of
from trainer.seeds import derive
from trainer.simulator.clock import VirtualLoop, run_virtually
from trainer.simulator.fleet import FleetTimes
from trainer.simulator.parts import Plans, PromiseBroken, SimulatedCalls, Weights

__all__ = ["Report", "Saved", "simulate"]


@dataclass(slots=True)
class Saved:
    """What a simulated run keeps on its disk, beside the journal: its checkpoint, and the records of what was played."""

    plans: Plans
    step: int = 0
    weights: dict[int, str] = field(default_factory=lambda: {0: ""})
    outcomes: str = ""
    stream: StreamState | None = None
    over_lag: int = 0
    """Tokens that were learned as if within the lag, and were sampled by other weights than their record says."""

    def save(self, batch: Batch, weights: Weights, every: int) -> None:
        """Take a checkpoint of the step that learned a batch, and let go of what only the one before needs."""
        step, stream = batch.plan.step, batch.open
        self.step, self.weights, self.outcomes, self.stream = step, dict(weights.kept), batch.after, stream
        self.plans.forget(range(step - every, step + 1))
        if stream:
            self.plans.forget_kept(stream.groups, but={each.number for each in stream.open})


@dataclass(slots=True)
class Report:
    """What a simulated run took. Seconds of virtual time."""

    steps_s: list[float] = field(default_factory=list)
    """From the end of the step before to the end of its own."""
    learn_s: float = 0.0
    sampled_s: float = 0.0
    """That engines had something to sample, all together."""
    env_s: float = 0.0
    """That environments took, all together."""
    waited_s: dict[str, float] = field(default_factory=lambda: {"environments": 0.0, "samplers": 0.0})
    """That the learner waited for a batch, by what its last rollout was spent on."""
    lags: list[float] = field(default_factory=list)
    """Versions from the one that sampled a token to the newest, of each step's tokens on average."""
    most_lag: int = 0
    """Of a token that was learned."""
    tokens: int = 0
    """Of the batches, and of groups that were set aside as too old."""
    too_old: int = 0
    """Of them, those that are older than the lag allows, so that nothing is learned of them."""
    rollouts_too_old: int = 0
    """Of groups that were set aside as too old."""
    slots: int = 0
    """Of environments that a plan can fill, or all that a stream lets in at once."""
    engines: int = 0
    outages: float = 0
    """Of ROCK."""
    away_s: float = 0
    """That sampling waited for it."""
    weights: str = ""
    """A digest of all that was learned, in order."""

    @property
    def total_s(self) -> float:
        return sum(self.steps_s)

    def summary(self) -> dict[str, dict[str, float]]:
        """Return step times, idle shares, lag and what bounds the run, as docs/simulate.md names them."""
        total_s = self.total_s or 1.0
        bound = {**self.waited_s, "learner": max(0.0, total_s - sum(self.waited_s.values()))}
        p50, p99 = np.percentile(self.steps_s, [50, 99])
        return {
            "step_s": {"mean": mean(self.steps_s), "p50": float(p50), "p99": float(p99)},
            "idle": {
                "samplers": 1 - self.sampled_s / (self.engines * total_s),
                "environments": 1 - self.env_s / (self.slots * total_s),
                "learner": 1 - self.learn_s / total_s,
            },
            "lag": {
                "mean": mean(self.lags),
                "most": float(self.most_lag),
                "too_old": self.too_old / max(1, self.tokens),
            },
            "bound": {name: spent_s / total_s for name, spent_s in bound.items()},
        }


def simulate(
    config: TrainConfig,
    fleet: FleetTimes,
    folder: Path,
    saved: Saved | None = None,
    loop: VirtualLoop | None = None,
    made: Callable[..., SimulatedCalls] = SimulatedCalls,
) -> Report:
    """Run the steps after what was saved, with the journal in `folder`; `saved` is kept up to date.

    Raise `PromiseBroken` or `Stalled` where the scheduler is wrong, and `Halted` as a run does.
    """
    saved = saved or Saved(Plans(config))
    report = run_virtually(_drive(config, fleet, folder, saved, made), loop)
    found = audit(entries(folder / JOURNAL))
    if found.lost or found.twice or found.open:
        raise PromiseBroken(
            f"the journal tells of rollouts that are lost: {found.lost[:3]}, learned twice: {found.twice[:3]}, or came to "
            f"no end: {found.open[:3]}"
        )
    if saved.over_lag:
        raise PromiseBroken(
            f"{saved.over_lag} tokens were learned that other weights sampled than their record says"
        )
    return report


async def _drive(
    config: TrainConfig, fleet: FleetTimes, folder: Path, saved: Saved, made: Callable[..., SimulatedCalls]
) -> Report:
    first = saved.step + 1
    journal = Journal(folder, done=saved.step or None)
    stream = saved.stream
    journal.begin([one for group in (stream.open if stream else []) for one in group.ids])
    stored = saved.plans.stored_plans
    saved.plans.forget([step for step in stored if step < first or step not in journal.kept()])
    saved.plans.outcomes = saved.outcomes
    weights, now = Weights(config, saved.weights), asyncio.get_running_loop().time
    calls = made(config, fleet, weights)
    outages = Outages(config, calls.rock_answers, clock=now)
    waiting = WaitingCalls(calls, outages)
    sampling = scheduler_of(config, waiting, saved.plans, journal, done=saved.step, begun=stream, clock=now)
    running = asyncio.get_running_loop().create_task(sampling.run())
    options, report = config.rollout, Report()
    try:
        for step in range(first, config.steps + 1):
            begun = now()
            await sampling.learned(step - 1)
            batch = await sampling.batch(step)
            ended = [
                *batch.rollouts.trajectories,
                *(played.trajectory for played in batch.rollouts.set_aside),
            ]
            sampled_share = calls.forget({each.id for each in ended})
            report.waited_s["samplers"] += sampled_share * (now() - begun)
            report.waited_s["environments"] += (1 - sampled_share) * (now() - begun)
            _check(batch, config)
            saved.over_lag += _note_lags(batch, config, weights, report)
            learn_s, other_s = _learner_times(config, fleet, step)
            await asyncio.sleep(learn_s)
            report.learn_s += learn_s
            weights.publish(step, batch.rollouts.trajectories)
            if options.overlaps:
                await sampling.learned(step)
            sampling.consumed(batch)
            await asyncio.sleep(other_s)
            if step % config.checkpoint.every == 0 or step == config.steps:
                saved.save(batch, weights, config.checkpoint.every)
            report.steps_s.append(now() - begun)
        await running
    finally:
        running.cancel()
        sampling.close()
        journal.close()
    if left := +sampling.queue.counts:
        raise PromiseBroken(f"the run is over, and rollouts are not: got {dict(left)}, expected none")
    report.env_s, report.sampled_s = calls.env_s, sum(engine.busy_s for engine in calls.engines)
    counted = outages.metrics()
    report.outages, report.away_s = counted.get("outages/count", 0.0), counted.get("outages/s", 0.0)
    groups = options.groups_per_step
    if options.streams:
        groups = groups * (options.staleness + 1) + options.spare_groups
    report.slots = min(sum(calls.slots), groups * options.group_size)
    report.engines, report.weights = len(calls.engines), weights.kept[max(weights.kept)]
    return report


def _learner_times(config: TrainConfig, fleet: FleetTimes, step: int) -> tuple[float, float]:
    if recorded := fleet.recorded_at(step):
        return recorded.learn_s, recorded.other_s
    random = Random(derive(config.seed, "learner", step))
    return fleet.learner.step_s.draw(random), fleet.learner.other_s.draw(random)


def _note_lags(batch: Batch, config: TrainConfig, weights: Weights, report: Report) -> int:
    """Note how many versions behind a batch was sampled; return how many tokens within the lag are not what they say."""
    newest, lag = batch.plan.step - 1, config.rollout.staleness
    learned = _tokens(batch.rollouts.trajectories)
    within = [
        (newest - version, mark == weights.mark(version))
        for version, mark in learned
        if newest - version <= lag
    ]
    aside = _tokens(played.trajectory for played in batch.rollouts.too_old)
    report.lags.append(mean([age for age, _ in within] or [0]))
    report.most_lag = max([report.most_lag, *(age for age, _ in within)])
    report.tokens += len(learned) + len(aside)
    report.too_old += len(learned) + len(aside) - len(within)
    report.rollouts_too_old += len(batch.rollouts.too_old)
    return sum(not is_true for _, is_true in within)


def _tokens(trajectories: Iterable[Trajectory]) -> list[tuple[int, int]]:
    """Return of each token the version that sampled it by its record, and the mark of the weights that did."""
    turns = [turn for t in trajectories for turn in t.turns]
    return [
        (span.version, int(mark))
        for turn in turns
        for span, mark in zip(turn.spans, turn.completion_ids, strict=True)
    ]


def _check_ages(batch: Batch, config: TrainConfig) -> None:
    """Raise `PromiseBroken` where a stream learns a group of which no token is within the lag."""
    if (oldest := config.rollout.oldest(batch.plan.step)) is None:
        return
    newest: dict[str, int] = {}
    for played in batch.rollouts.trajectories:
        version = newest_version(played)
        newest[played.group_id] = max(newest.get(played.group_id, -1), -1 if version is None else version)
    if aged := [group for group, version in newest.items() if version < oldest]:
        raise PromiseBroken(
            f"step {batch.plan.step} learns group {aged[0]} of version {newest[aged[0]]}: expected {oldest} at least"
        )


def _check(batch: Batch, config: TrainConfig) -> None:
    """Raise `PromiseBroken` where a batch is none that may be learned."""
    step, options, trajectories = batch.plan.step, config.rollout, batch.rollouts.trajectories
    lags = [step - 1 - version for version, _ in _tokens(trajectories)]
    expected = step - 1 - max(0, step - 1 - options.staleness)
    if min(lags) < 0 or (set(lags) != {expected} and not options.streams):
        raise PromiseBroken(
            f"step {step} learns tokens that are {sorted(set(lags))} versions old: expected {expected} only"
        )
    _check_ages(batch, config)
    groups = Counter(t.group_id for t in trajectories)
    ids: Sequence[str] = [asked_for(t.id) for t in trajectories]
    if (
        len(set(ids)) < len(ids)
        or set(groups.values()) != {options.group_size}
        or len(groups) != options.groups_per_step
    ):
        raise PromiseBroken(
            f"step {step} learns {len(ids)} rollouts, {len(set(ids))} of them different, of {len(groups)} groups: expected "
            f"{options.groups_per_step} groups of {options.group_size}"
        )
