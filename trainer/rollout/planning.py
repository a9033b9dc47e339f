"""What a step asks for, and how it moves what the next one is drawn from. Shared by a run and by its recomputation.

A plan is a function of configuration, step number, anchor pools and pass rates. Nothing here plays or learns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from agent_runtime.types import RolloutRequest, Trajectory
from trainer.config import TrainConfig, dealt
from trainer.environments import Environment, name_of
from trainer.learners.rates import learning_rate
from trainer.rollout.anchors import Anchor, injections
from trainer.rollout.curriculum import PassRates, draw_tasks, observe
from trainer.rollout.pools import Pools
from trainer.rollout.starts import Injection
from trainer.rollout.tasks import anchored_groups, train_requests
from trainer.seeds import derive

__all__ = ["Plan", "Planner", "Rates"]

Rates = Mapping[str, PassRates]
"""Environment -> its tasks' pass rates."""


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
    """Draws the steps of a run; `rates` (by environment) are kept up to date in place."""

    def __init__(
        self, config: TrainConfig, environments: Sequence[Environment], pools: Pools, *, learns: bool
    ) -> None:
        """Take the run's environments and anchor pools, and whether its algorithm learns from rollouts at all."""
        self._config, self._environments, self._pools = config, environments, pools
        self._learns = learns

    @property
    def names(self) -> list[str]:
        """Return the names of the run's environments."""
        return [each.name for each in self._environments]

    def plan(self, step: int, rates: Rates) -> Plan:
        """Draw anchors and tasks: groups of each environment by its share, those of one after those of the other."""
        config = self._config
        groups = config.rollout.groups_per_step if self._learns else 0
        counts = dealt(config.shares, (step - 1) * groups, groups)
        anchors: dict[str, Anchor] = {}
        requests: list[RolloutRequest] = []
        first = 0
        for env in self._environments:
            own, started = self._plan_of(env, step, first, counts[env.name], rates)
            requests += own
            anchors |= started
            first += counts[env.name]
        return self.learning(step, requests, anchors)

    def learning(self, step: int, requests: Sequence[RolloutRequest], anchors: Mapping[str, Anchor]) -> Plan:
        """Return a step that learns these groups: with what it imitates beside them, and its rate."""
        return Plan(
            step=step,
            anchors=dict(anchors),
            requests=list(requests),
            injections=self._injections(step),
            lr=learning_rate(self._config.optim, step, self._config.steps),
        )

    def _plan_of(
        self, env: Environment, step: int, first: int, groups: int, rates: Rates
    ) -> tuple[list[RolloutRequest], dict[str, Anchor]]:
        """Return the requests of one environment, its groups numbered from `first`, and their anchors."""
        anchored = anchored_groups(self._config, groups) if groups else 0
        anchors = self._pools.of(env.name).choose(anchored, self._seed(env, "anchors", step))
        tasks = self._draw(env, groups - len(anchors), self._seed(env, "tasks", step), rates)
        params_json = env.params.canonical()
        requests = train_requests(env.config, params_json, step, tasks=tasks, anchors=anchors, first=first)
        by_group = {request.group_id: None for request in requests}
        return requests, dict(zip(by_group, anchors, strict=False))

    def more(
        self, step: int, first: int, envs: Sequence[str], used: Collection[tuple[str, str]], rates: Rates
    ) -> list[RolloutRequest]:
        """Draw a further group of a step for each name in `envs`, of tasks not in `used` (environment and task).

        They are numbered from `first` of all the further ones.
        """
        requests: list[RolloutRequest] = []
        number = first + self._config.rollout.groups_per_step
        for env in self._environments:
            count = envs.count(env.name)
            without = {task_id for name, task_id in used if name == env.name}
            tasks = self._draw(env, count, self._seed(env, "tasks", step, first), rates, without)
            requests += train_requests(env.config, env.params.canonical(), step, tasks=tasks, first=number)
            number += count
        return requests

    def observe_anchors(self, plan: Plan, seen: Sequence[Trajectory]) -> None:
        """Move the anchors by what the policy did."""
        self._pools.observe(plan.step, plan.anchors, seen)

    def observe_tasks(self, plan: Plan, seen: Sequence[Trajectory], rates: Rates) -> list[Trajectory]:
        """Count which tasks were passed; return the rollouts from the tasks' own starts, which were counted."""
        from_start = [t for t in seen if t.group_id not in plan.anchors]
        for env in self._environments:
            own = [t for t in from_start if len(self._environments) == 1 or name_of(t) == env.name]
            observe(rates[env.name], own, self._config.curriculum)
        return from_start

    def _seed(self, env: Environment, *parts: str | int) -> int:
        """Return a seed of one environment; alone it has those of the run."""
        return derive(self._config.seed, *parts, *([env.name] if len(self._environments) > 1 else []))

    def _draw(
        self, env: Environment, count: int, seed: int, rates: Rates, without: Collection[str] = ()
    ) -> list[str]:
        """Draw tasks of the training split, as the curriculum has it."""
        options, split, own = self._config.curriculum, self._config.train_split, rates[env.name]
        return draw_tasks(env.source, split, count, seed, rates=own, options=options, without=without)

    def _injections(self, step: int) -> list[Injection]:
        anchors, steps = self._config.anchors, self._config.steps
        weightless = self._config.algo_options.get("lambda_il") == 0
        if weightless or not anchors.inject or not anchors.inject_until:
            return []
        weight = 1 - (step - 1) / (anchors.inject_until * steps)
        if weight <= 0:
            return []
        counts = dealt(self._config.shares, (step - 1) * anchors.inject, anchors.inject)
        drawn = [
            anchor
            for env in self._environments
            for anchor in self._pools.of(env.name).injections(
                counts[env.name], self._seed(env, "inject", step)
            )
        ]
        seed = derive(self._config.seed, "inject", step)
        return injections(drawn, anchors.inject_turns, weight=weight, seed=seed)
