"""From finished rollouts to a plan's batch: groups without variance are replaced, too many rejected ones halt the run.

A rejected rollout was sampled again in its slot, by the worker. A group is known to have no variance when all of it is in;
where batches are in lockstep the collector is asked when a whole wave is in, else as each group is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence

from agent_runtime.store import decode
from agent_runtime.types import RolloutRequest, Trajectory
from rock_env.plugins import load
from trainer.algo.base import AlgorithmSpec
from trainer.config import TrainConfig
from trainer.rollout.failures import handing_over
from trainer.rollout.filling import PlayedRollout, Rollouts
from trainer.rollout.filtering import check_share, most_extra_groups, rejection, varies
from trainer.rollout.report import sampled_tokens

__all__ = ["Collector", "More", "allowed_extra", "judging"]

More = Callable[[int, Sequence[str], Collection[tuple[str, str]]], list[RolloutRequest]]
"""`more(first, envs, used)` draws a further group for each environment in `envs`, numbered from `first` of all the further
ones, of tasks that are not in `used` (environment and task) where there are others."""


class Collector:
    """The batch of one plan, as it comes in."""

    def __init__(
        self,
        requests: Sequence[RolloutRequest],
        *,
        config: TrainConfig,
        anchored: Container[str],
        more: More,
        allowed: int,
        server_end: Callable[[], str],
    ) -> None:
        """Groups in `anchored` are never replaced: their scheduler needs every outcome, and moves an anchor whose groups no
        longer vary. At most `allowed` further groups are drawn. `server_end()` says how the embedded ROCK server ended."""
        self._config, self._anchored, self._more = config, anchored, more
        self._allowed, self._server_end = allowed, server_end
        self._asked = list(requests)
        self._used = {(request.env, request.task_id) for request in requests}
        self._members: dict[str, list[RolloutRequest]] = {}
        self._missing: Counter[str] = Counter()
        self._env_of: dict[str, str] = {}
        self._take(requests)
        self._groups: dict[str, list[PlayedRollout]] = {name: [] for name in self._members}
        """The batch: a group that was replaced has its replacement in its place."""
        self._tries: dict[str, list[PlayedRollout]] = {}
        self._whole: list[str] = []
        """Groups that are in and were not looked at."""
        self._troubled = self._lost = 0
        """Rollouts that were rejected at least once, and those of them without a replacement."""
        self._flat: list[str] = []
        self._outstanding = 0
        """Further groups that were drawn and are not in yet."""
        self._set_aside: list[PlayedRollout] = []
        self._flat_groups = self._extra_groups = 0

    def _take(self, requests: Sequence[RolloutRequest]) -> None:
        for request in requests:
            self._members.setdefault(request.group_id, []).append(request)
            self._missing[request.group_id] += 1
            self._env_of[request.group_id] = request.env

    def add(self, request: RolloutRequest, tries: Sequence[bytes]) -> None:
        """Take all attempts at one rollout, the one that counts last, with the reward that groups are compared by."""
        own = [PlayedRollout(encoded, decode(encoded)) for encoded in tries]
        self._tries[request.id] = own
        lost = self._is_rejected(own[-1])
        self._lost += lost
        self._troubled += lost or len(own) > 1
        self._missing[request.group_id] -= 1
        if not self._missing[request.group_id]:
            self._whole.append(request.group_id)

    @property
    def is_full(self) -> bool:
        """Return whether every rollout that was asked for is in."""
        return len(self._tries) == len(self._asked)

    def further(self) -> list[RolloutRequest]:
        """Look at the groups that are whole by now; return what is to be played in place of flat ones. Raise `Halted`."""
        self._check()
        for name in self._whole:
            self._look(name, [self._tries[member.id][-1] for member in self._members[name]])
        self._whole = []
        count = min(len(self._flat) - self._outstanding, self._allowed - self._extra_groups)
        if count <= 0:
            return []
        replaced = self._flat[self._outstanding : self._outstanding + count]
        drawn = self._more(self._extra_groups, [self._env_of[name] for name in replaced], self._used)
        self._used.update((request.env, request.task_id) for request in drawn)
        self._take(drawn)
        self._asked += drawn
        self._outstanding += count
        self._extra_groups += count
        return drawn

    def _look(self, name: str, group: list[PlayedRollout]) -> None:
        flat = not varies([played.trajectory for played in group], self._config.filter)
        if name in self._groups:
            self._groups[name] = group
            if flat and name not in self._anchored:
                self._flat.append(name)
                self._flat_groups += 1
            return
        self._outstanding -= 1
        leaving = group
        if flat:
            self._flat_groups += 1
        else:
            place = next(each for each in self._flat if self._env_of[each] == self._env_of[name])
            self._flat.remove(place)
            leaving, self._groups[place] = self._groups[place], group
        self._set_aside += leaving

    def _check(self) -> None:
        """Raise `Halted`, with what was played, where too many rollouts are rejected."""
        asked = len(self._asked)
        if self._troubled <= self._config.rollout.max_failure_rate * asked and self._lost < asked:
            return
        tries = [self._tries[request.id] for request in self._asked if request.id in self._tries]
        rejected = [played for own in tries for played in own[:-1]]
        rejected += [own[-1] for own in tries if self._is_rejected(own[-1])]
        with handing_over([played.encoded for own in tries for played in own]):
            check_share(
                [played.trajectory for played in rejected],
                troubled=self._troubled,
                lost=self._lost,
                asked=asked,
                config=self._config,
                server_end=self._server_end(),
            )

    def _is_rejected(self, played: PlayedRollout) -> bool:
        return bool(rejection(played.trajectory, self._config.filter))

    def rollouts(self, duration_s: float, judged: Sequence[Mapping[str, float]]) -> Rollouts:
        """Return the batch, which is full; `judged` is what judging each wave, or each rollout, cost."""
        tries = [self._tries[request.id] for request in self._asked]
        found = Rollouts(
            encoded=[played.encoded for group in self._groups.values() for played in group],
            trajectories=[played.trajectory for group in self._groups.values() for played in group],
            rejected=[played for own in tries for played in own[:-1]],
            flat=self._set_aside,
            flat_groups=self._flat_groups,
            extra_groups=self._extra_groups,
            troubled_share=self._troubled / max(1, len(tries)),
            tokens=sampled_tokens([played.trajectory for own in tries for played in own]),
            duration_s=duration_s,
        )
        found.reward_metrics = judging(judged, found.seen)
        return found


def allowed_extra(config: TrainConfig) -> int:
    """Return how many groups a step may draw in place of groups without variance."""
    algorithm = load("ale.algorithms", config.algo)
    assert isinstance(algorithm, AlgorithmSpec)
    return most_extra_groups(config, wanted_by_algorithm=algorithm.dynamic_sampling)


def judging(waves: Sequence[Mapping[str, float]], seen: Sequence[Trajectory]) -> dict[str, float]:
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
