"""How good the published policy is: episodes on held-out tasks, and a quiz on held-out experts.

It never learns, and never writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from agent_runtime.store import decode
from agent_runtime.types import RolloutRequest, Trajectory
from trainer.config import TrainConfig
from trainer.environments import Environment
from trainer.metrics import Evaluation, Interval
from trainer.processes.fleet import Fleet
from trainer.rollout.experts import quizzes
from trainer.rollout.failures import check_failures, handing_over
from trainer.rollout.report import episode_metrics, illegal_share
from trainer.rollout.success import combined, interval_of, pass_at, passed_by_task, powers_up_to
from trainer.rollout.tasks import eval_requests, is_sample, sample_requests, task_ids
from trainer.scheduler.outages import Outages
from trainer.seeds import derive

__all__ = ["Evaluator", "evaluation_of", "mixed"]


class Evaluator:
    """Asks the fleet; what it asks is a function of configuration and step."""

    def __init__(
        self,
        config: TrainConfig,
        environments: Sequence[Environment],
        fleet: Fleet,
        outages: Outages | None = None,
    ) -> None:
        """Where `outages` are waited for, what they cost is played again."""
        self._config, self._fleet = config, fleet
        self._parts = {each.name: _Part(each, fleet, outages) for each in environments}

    def play(
        self, step: int, count: int, apart: Sequence[str] = (), *, sampled: bool = False
    ) -> tuple[Evaluation, list[bytes]]:
        """Play `count` tasks of `eval.split`, and `eval.apart_tasks` or as many of each split in `apart`.

        With `sampled`, play `eval.samples` more episodes of each of the former at `eval.samples_temperature`. Of several
        environments it is as many of each, and the result the mean by their shares. Return the result and the encoded
        episodes.

        Raise `Halted`, with the episodes, where too many failed, or all of one split: it has no success then, not one of 0.
        """
        found = {name: part.play(step, count, apart, sampled=sampled) for name, part in self._parts.items()}
        if len(found) == 1:
            return next(iter(found.values()))
        evaluations = {name: evaluation for name, (evaluation, _) in found.items()}
        shares = {each.env: float(each.share) for each in self._config.shares}
        return mixed(evaluations, shares), [data for _, encoded in found.values() for data in encoded]

    def legal_share(self, count: int, turns: int) -> float:
        """Return the share of legal actions in the first turns of `count` tasks of `eval.split`; NaN where none was played.

        The same tasks each time, in part those of `play`. Of several environments it is the mean by their shares. Nothing of
        it is recorded.
        """
        shares = {each.env: float(each.share) for each in self._config.shares}
        return sum(shares[name] * part.legal_share(count, turns) for name, part in self._parts.items())

    def quiz(self, held_out: Sequence[Trajectory]) -> dict[str, float]:
        """Return the policy's loss on held-out experts, and how many of their turns it answers the same.

        Nothing where the learner holds none.
        """
        metrics = self._fleet.measure()
        if not metrics:
            return {}
        asked = quizzes(held_out, derive(self._config.seed, "quizzes"))
        answers = self._fleet.sample([quiz.request for quiz in asked])
        same = [np.array_equal(a.ids, q.answer_ids) for a, q in zip(answers, asked, strict=True)]
        return {**metrics, "held_out_accuracy": float(np.mean(same))}


def evaluation_of(
    step: int,
    episodes: Sequence[Trajectory],
    optimum: float,
    *,
    apart: Mapping[str, Sequence[Trajectory]] | None = None,
    samples: Sequence[Trajectory] = (),
) -> Evaluation:
    """Return what episodes of one environment say, those of other splits, and sampled ones of the same tasks.

    At least one of each must have a verdict.
    """
    splits = {split: [t for t in members if t.has_reward] for split, members in (apart or {}).items()}
    whole = [t for t in episodes if t.has_reward]
    tries = list(passed_by_task(samples).values())
    return Evaluation(
        step=step,
        success=float(np.mean([t.passed for t in whole])),
        optimum=optimum,
        episodes=len(whole),
        failures=len(episodes) - len(whole),
        apart={split: float(np.mean([t.passed for t in members])) for split, members in splits.items()},
        interval=interval_of(passed_by_task(whole).values()),
        apart_intervals={
            split: interval_of(passed_by_task(members).values()) for split, members in splits.items()
        },
        legal_share=1 - illegal_share([t for members in (whole, *splits.values()) for t in members]),
        reward=float(np.mean([t.reward for t in whole])),
        turns=float(np.mean([len(t.turns) for t in whole])),
        pass_at={k: pass_at(k, tries) for k in powers_up_to(max(map(len, tries), default=0))},
        pass_interval=interval_of(tries) if tries else Interval(),
        counted=episode_metrics(whole),
    )


def mixed(evaluations: Mapping[str, Evaluation], shares: Mapping[str, float]) -> Evaluation:
    """Return the evaluation of a mixture: means by the environments' shares, sums of what is counted."""
    every, weights = list(evaluations.values()), [shares[name] for name in evaluations]

    def mean(values: Iterable[float]) -> float:
        return sum(weight * value for weight, value in zip(weights, values, strict=True))

    def interval(estimates: Iterable[float], intervals: Iterable[Interval]) -> Interval:
        return combined(list(zip(weights, estimates, intervals, strict=True)))

    apart = {split: [each.apart[split] for each in every] for split in every[0].apart}
    ks = [k for k in every[0].pass_at if all(k in each.pass_at for each in every)]
    return Evaluation(
        step=every[0].step,
        success=mean(each.success for each in every),
        optimum=mean(each.optimum for each in every),
        episodes=sum(each.episodes for each in every),
        failures=sum(each.failures for each in every),
        apart={split: mean(found) for split, found in apart.items()},
        interval=interval([each.success for each in every], [each.interval for each in every]),
        apart_intervals={
            split: interval(found, [each.apart_intervals[split] for each in every])
            for split, found in apart.items()
        },
        legal_share=mean(each.legal_share for each in every),
        reward=mean(each.reward for each in every),
        turns=mean(each.turns for each in every),
        pass_at={k: mean(each.pass_at[k] for each in every) for k in ks},
        pass_interval=interval(
            [each.pass_at.get(1, math.nan) for each in every], [each.pass_interval for each in every]
        ),
        counted={name: mean(each.counted[name] for each in every) for name in every[0].counted},
        envs=dict(evaluations),
    )


class _Part:
    """Evaluates one of the run's environments."""

    def __init__(self, env: Environment, fleet: Fleet, outages: Outages | None) -> None:
        self._env, self._config, self._fleet, self._outages = env, env.config, fleet, outages
        self._source = env.source
        self._optima: dict[str, float] = {}

    def play(
        self, step: int, count: int, apart: Sequence[str], *, sampled: bool
    ) -> tuple[Evaluation, list[bytes]]:
        """Play tasks of one environment, as `Evaluator.play`."""
        config, seed = self._config.eval, derive(self._config.seed, "held-out tasks")
        ids = task_ids(self._source, config.split, config.tasks, seed)[:count]
        beside = config.apart_tasks or count
        others = [each for split in apart for each in task_ids(self._source, split, beside, seed)]
        requests = self._requests(self._config, step, [*ids, *others])
        if sampled:
            params = self._env.params.canonical()
            requests += sample_requests(self._config, params, step, ids, label=self._env.label)
        encoded = self._run(requests, step)
        trajectories = [decode(data) for data in encoded]
        samples = [t for t in trajectories if is_sample(t)]
        by_split: dict[str, list[Trajectory]] = {split: [] for split in (config.split, *apart)}
        for trajectory in [t for t in trajectories if not is_sample(t)]:
            by_split[trajectory.task_id.rpartition("/")[0]].append(trajectory)
        with handing_over(encoded):
            self._check(trajectories, self._config.rollout.max_failure_rate, "rollouts")
            for split, members in by_split.items():
                self._check(members, 1.0, f"evaluation episodes of split {split!r}")
            self._check(samples, 1.0, "sampled evaluation episodes")
        whole = by_split.pop(config.split)
        optimum = float(np.mean([self._optimum(task_id) for task_id in ids]))
        return evaluation_of(step, whole, optimum, apart=by_split, samples=samples), encoded

    def legal_share(self, count: int, turns: int) -> float:
        """Play first turns of one environment, as `Evaluator.legal_share`."""
        agent = self._config.agent.model_copy(update={"max_turns": min(turns, self._config.agent.max_turns)})
        config = self._config.model_copy(update={"agent": agent})
        seed = derive(self._config.seed, "held-out tasks")
        ids = task_ids(self._source, config.eval.split, config.eval.tasks, seed)[:count]
        encoded = self._run(self._requests(config, 0, ids), 0)
        return 1 - illegal_share([t for t in map(decode, encoded) if t.has_reward])

    def _run(self, requests: Sequence[RolloutRequest], step: int) -> list[bytes]:
        if self._outages is None:
            return self._fleet.run(requests, step)
        return self._outages.run(requests, lambda left: self._fleet.run(left, step))

    def _requests(self, config: TrainConfig, step: int, tasks: Sequence[str]) -> list[RolloutRequest]:
        return eval_requests(config, self._env.params.canonical(), step, tasks, label=self._env.label)

    def _check(self, trajectories: Sequence[Trajectory], max_share: float, of: str) -> None:
        check_failures(trajectories, max_share=max_share, server_end=self._fleet.server_end, of=of)

    def _optimum(self, task_id: str) -> float:
        """Return the task's optimum, solved once a run: every evaluation asks for the same tasks."""
        if task_id not in self._optima:
            split, _, index = task_id.rpartition("/")
            self._optima[task_id] = self._env.spec.optimum(
                self._env.params, self._source.get(split, int(index))
            )
        return self._optima[task_id]
