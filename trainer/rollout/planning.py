"""What a step asks for, and how it moves what the next one is drawn from. Shared by a run and by its recomputation.

A plan is a function of configuration, step number, anchor pool and pass rates. Nothing here plays or learns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from agent_runtime.types import RolloutRequest, Trajectory
from rock_env.spec import TaskSource
from trainer.config import TrainConfig
from trainer.engine.rates import learning_rate
from trainer.rollout.anchors import Anchor, AnchorPool, injections
from trainer.rollout.curriculum import PassRates, draw_tasks, observe
from trainer.rollout.starts import Injection
from trainer.rollout.tasks import anchored_groups, train_requests
from trainer.seeds import derive

__all__ = ["Plan", "Planner"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What one step asks for."""

    step: int
    anchors: dict[str, Anchor]
    """group id -> anchor, for the groups that do not begin at the task's start."""
    requests: list[RolloutRequest]
    injections: list[Injection]
    lr: float


class Planner:
    """Draws the steps of a run; `rates` is kept up to date in place."""

    def __init__(
        self, config: TrainConfig, *, params_json: str, source: TaskSource, pool: AnchorPool, learns: bool
    ) -> None:
        """Take the run's anchor pool, and whether its algorithm learns from rollouts at all."""
        self._config, self._params_json, self._source, self._pool = config, params_json, source, pool
        self._learns = learns

    def plan(self, step: int, rates: PassRates) -> Plan:
        """Draw anchors and tasks."""
        config = self._config
        groups = config.rollout.groups_per_step if self._learns else 0
        anchored = anchored_groups(config) if groups else 0
        anchors = self._pool.choose(anchored, derive(config.seed, "anchors", step))
        tasks = self._draw(groups - len(anchors), derive(config.seed, "tasks", step), rates)
        requests = train_requests(config, self._params_json, step, tasks=tasks, anchors=anchors)
        by_group = {request.group_id: None for request in requests}
        return Plan(
            step=step,
            anchors=dict(zip(by_group, anchors, strict=False)),
            requests=requests,
            injections=self._injections(step),
            lr=learning_rate(config.optim, step, config.steps),
        )

    def more(
        self, step: int, first: int, count: int, used: Collection[str], rates: PassRates
    ) -> list[RolloutRequest]:
        """Draw further groups of a step, numbered from `first` of all the further ones, of tasks not in `used`."""
        config = self._config
        tasks = self._draw(count, derive(config.seed, "tasks", step, first), rates, used)
        first += config.rollout.groups_per_step
        return train_requests(config, self._params_json, step, tasks=tasks, first=first)

    def observe_anchors(self, plan: Plan, seen: Sequence[Trajectory]) -> None:
        """Move the anchors by what the policy did."""
        self._pool.observe(plan.step, plan.anchors, seen)

    def observe_tasks(self, plan: Plan, seen: Sequence[Trajectory], rates: PassRates) -> list[Trajectory]:
        """Count which tasks were passed; return the rollouts from the tasks' own starts, which were counted."""
        from_start = [t for t in seen if t.group_id not in plan.anchors]
        observe(rates, from_start, self._config.curriculum)
        return from_start

    def _draw(self, count: int, seed: int, rates: PassRates, without: Collection[str] = ()) -> list[str]:
        """Draw tasks of the training split, as the curriculum has it."""
        options, split = self._config.curriculum, self._config.train_split
        return draw_tasks(self._source, split, count, seed, rates=rates, options=options, without=without)

    def _injections(self, step: int) -> list[Injection]:
        anchors, steps = self._config.anchors, self._config.steps
        weightless = self._config.algo_options.get("lambda_il") == 0
        if weightless or not anchors.inject or not anchors.inject_until:
            return []
        weight = 1 - (step - 1) / (anchors.inject_until * steps)
        if weight <= 0:
            return []
        seed = derive(self._config.seed, "inject", step)
        drawn = self._pool.injections(anchors.inject, seed)
        return injections(drawn, anchors.inject_turns, weight=weight, seed=seed)
