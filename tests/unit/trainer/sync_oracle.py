"""The loop that was before the scheduler: a step's requests are played in waves, and the batch is filled when all are in.

An oracle: `rollout.batching=lockstep` has to give the very same batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from agent_runtime.store import decode
from agent_runtime.types import RolloutRequest, Trajectory
from rock_env.plugins import load
from trainer.algo.base import AlgorithmSpec
from trainer.config import TrainConfig
from trainer.reward.router import Rewarded
from trainer.rollout.failures import handing_over
from trainer.rollout.filling import PlayedRollout, Rollouts
from trainer.rollout.filtering import check_share, most_extra_groups, rejection, varies
from trainer.rollout.report import sampled_tokens

__all__ = ["fill"]


class Plays(Protocol):
    """What plays rollouts: `trainer.processes.fleet.Fleet`."""

    @property
    def server_end(self) -> str:
        """Say how the embedded ROCK server ended; empty while it runs."""
        ...

    def play(self, requests: Sequence[RolloutRequest], policy_step: int) -> list[list[bytes]]:
        """Return all attempts at each request, the one that counts last."""
        ...

    def reward(self, encoded: Sequence[bytes], run_folder: Path) -> Rewarded:
        """Let the reward workers judge trajectories, in order."""
        ...


def fill(
    fleet: Plays,
    folder: Path,
    requests: Sequence[RolloutRequest],
    step: int,
    *,
    config: TrainConfig,
    anchored: Container[str],
    more: Callable[[int, Sequence[str], Collection[tuple[str, str]]], list[RolloutRequest]],
) -> Rollouts:
    """Play a step's requests and return a batch of as many rollouts.

    `more(first, envs, used)` draws a further group for each environment in `envs`, numbered from `first` of all the further
    ones, of tasks that are not in `used` (environment and task) where there are others. It is called until no group is left
    to replace or as many are drawn as `filter.dynamic_extra` allows. Groups in `anchored` are never replaced: their
    scheduler needs every outcome, and moves an anchor whose groups no longer vary. Raise `Halted`, with what was played,
    where too many rollouts are rejected.
    """
    playing = _Playing(fleet, folder, step, config)
    groups = playing.play(requests)
    flat = [name for name, group in groups.items() if name not in anchored and not _varies(group, config)]
    found = Rollouts(rejected=playing.rejected, flat_groups=len(flat))
    allowed = _allowed(config) if flat else 0
    used = {(request.env, request.task_id) for request in requests}
    env_of = {request.group_id: request.env for request in requests}
    while flat and found.extra_groups < allowed:
        count = min(len(flat), allowed - found.extra_groups)
        further = more(found.extra_groups, [env_of[name] for name in flat[:count]], used)
        used.update((request.env, request.task_id) for request in further)
        env_of |= {request.group_id: request.env for request in further}
        found.extra_groups += count
        for further_name, group in playing.play(further).items():
            leaving = group
            if _varies(group, config):
                name = next(name for name in flat if env_of[name] == env_of[further_name])
                flat.remove(name)
                leaving, groups[name] = groups[name], group
            else:
                found.flat_groups += 1
            found.flat += leaving
    found.encoded = [sample.encoded for group in groups.values() for sample in group]
    found.trajectories = [sample.trajectory for group in groups.values() for sample in group]
    found.tokens = playing.tokens
    found.troubled_share = playing.troubled / max(1, playing.asked)
    found.duration_s = playing.duration_s
    found.reward_metrics = _judging(playing.judged, found.seen)
    return found


def _judging(waves: Sequence[Mapping[str, float]], seen: Sequence[Trajectory]) -> dict[str, float]:
    """Return the reward workers' metrics of all waves: sums, the largest, and means over what was judged in all."""
    if len(waves) == 1:
        return dict(waves[0])
    names = dict.fromkeys(name for wave in waves for name in wave)
    found = {name: sum(wave.get(name, 0.0) for wave in waves) for name in names}
    if "reward/latency_max_s" in found:
        timed = [wave for wave in waves if "reward/latency_max_s" in wave]
        found["reward/latency_max_s"] = max(wave["reward/latency_max_s"] for wave in timed)
        spent_s = sum(wave["reward/latency_mean_s"] * wave["reward/asked"] for wave in timed)
        found["reward/latency_mean_s"] = spent_s / sum(wave["reward/asked"] for wave in timed)
    done = [t for t in seen if t.reward_source is not None and t.has_reward]
    if done:
        found["reward/env_distance"] = sum(abs(t.reward - t.env_reward) for t in done) / len(done)
        found["reward/turn_mean"] = sum(sum(t.turn_rewards) for t in done) / sum(len(t.turns) for t in done)
    return found


class _Playing:
    """The rollouts of one step so far; every wave is judged together with those before it."""

    def __init__(self, fleet: Plays, folder: Path, step: int, config: TrainConfig) -> None:
        self._fleet, self._folder, self._step, self._config = fleet, folder, step, config
        self.duration_s = 0.0
        self.judged: list[dict[str, float]] = []
        """What judging each wave cost, as the reward workers say."""
        self.asked = self.troubled = 0
        """Rollouts asked for, and those of them that were rejected at least once."""
        self._lost: list[Trajectory] = []
        self.rejected: list[PlayedRollout] = []
        """Sampled again."""
        self.tokens = 0
        self._encoded: list[bytes] = []

    def play(self, requests: Sequence[RolloutRequest]) -> dict[str, list[PlayedRollout]]:
        """Return the groups of the rollouts that count. Raise `Halted`."""
        groups: dict[str, list[PlayedRollout]] = {}
        for request, tries in zip(requests, self._play(requests), strict=True):
            samples = [PlayedRollout(encoded, decode(encoded)) for encoded in tries]
            self._encoded += tries
            self.tokens += sampled_tokens([sample.trajectory for sample in samples])
            self.rejected += samples[:-1]
            last = samples[-1]
            groups.setdefault(request.group_id, []).append(last)
            lost = bool(rejection(last.trajectory, self._config.filter))
            self._lost += [last.trajectory] * lost
            self.troubled += lost or len(samples) > 1
        self.asked += len(requests)
        with handing_over(self._encoded):
            check_share(
                [*(sample.trajectory for sample in self.rejected), *self._lost],
                troubled=self.troubled,
                lost=len(self._lost),
                asked=self.asked,
                config=self._config,
                server_end=self._fleet.server_end,
            )
        return groups

    def _play(self, requests: Sequence[RolloutRequest]) -> list[list[bytes]]:
        """Return all attempts, those that count with the rewards that groups are compared by."""
        started = time.monotonic()
        played = self._fleet.play(requests, self._step)
        self.duration_s += time.monotonic() - started
        rewarded = self._fleet.reward([tries[-1] for tries in played], self._folder)
        self.judged.append(rewarded.metrics)
        return [[*tries[:-1], last] for tries, last in zip(played, rewarded.encoded, strict=True)]


def _varies(group: Sequence[PlayedRollout], config: TrainConfig) -> bool:
    return varies([sample.trajectory for sample in group], config.filter)


def _allowed(config: TrainConfig) -> int:
    algorithm = load("ale.algorithms", config.algo)
    assert isinstance(algorithm, AlgorithmSpec)
    return most_extra_groups(config, wanted_by_algorithm=algorithm.dynamic_sampling)
