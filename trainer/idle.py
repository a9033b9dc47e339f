"""Settings that were chosen and can do nothing beside the others, said before a run begins.

What can never be meant is refused by the configuration itself; what a recipe may bring along, or a small trial leaves
no room for, is said here and no more. Pure; looks at a few tasks where rewards are routed by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rock_env.plugins import load
from trainer.algo.base import AlgorithmSpec
from trainer.config import TrainConfig
from trainer.environments import open_environments
from trainer.reward.router import fits, route_fields
from trainer.rollout.filtering import most_extra_groups
from trainer.rollout.tasks import anchored_groups, task_ids
from trainer.seeds import derive

__all__ = ["idle_settings"]

_ROUTED_TASKS = 32
"""Tasks that are drawn to see which routes they come to: a family of a tenth of all is missed by one run in thirty."""


def idle_settings(config: TrainConfig) -> list[str]:
    """Return a sentence for each setting without effect. The options of plugins must have been filled in."""
    algorithm = load("ale.algorithms", config.algo)
    assert isinstance(algorithm, AlgorithmSpec)
    if not algorithm.learns_from_rollouts:
        chosen = {"reward.routes": config.reward.routes, "reuse.trajectories": config.reuse.trajectories}
        why = f"algo {config.algo!r} learns from no rollouts: leave it out, or choose another algorithm"
        return [_said(name, value, why) for name, value in chosen.items() if value]
    return [*_starts(config), *_imitation(config), *_others(config, algorithm)]


def _starts(config: TrainConfig) -> Iterator[str]:
    anchors, groups = config.anchors, anchored_groups(config)
    scheduled = anchors.scheduler != "none"
    if scheduled and not groups:
        yield _said(
            "anchors.scheduler",
            anchors.scheduler,
            f"anchors.start_share={anchors.start_share:g} of rollout.groups_per_step={config.rollout.groups_per_step} "
            "leaves no whole group to an anchor: raise groups_per_step, or lower start_share",
        )
    elif scheduled and not _has_experts(config) and not anchors.self_sampled:
        yield _said(
            "anchors.scheduler",
            anchors.scheduler,
            "there will be no expert: set warmup.trajectories or warmup.data, or anchors.self_sampled=true",
        )
    if anchors.replay_share and not (scheduled and math.floor(groups * anchors.replay_share)):
        yield _said(
            "anchors.replay_share",
            anchors.replay_share,
            f"of {groups} groups with anchors.scheduler={anchors.scheduler!r} it is not one: raise it, choose a scheduler, "
            "or leave it out",
        )
    if anchors.hint_turns and anchors.scheduler != "hint":
        yield _said(
            "anchors.hint_turns",
            anchors.hint_turns,
            f"anchors.scheduler={anchors.scheduler!r} tells no hints",
        )


def _imitation(config: TrainConfig) -> Iterator[str]:
    anchors = config.anchors
    if not anchors.inject:
        return
    if not _has_experts(config):
        why = "own successes are never imitated, and there are no others: set warmup.trajectories or warmup.data"
    elif not anchors.inject_until:
        why = "anchors.inject_until=0 ends it before it begins"
    elif config.algo_options.get("lambda_il") == 0:
        why = "algo_options.lambda_il=0 is its weight in the loss"
    else:
        return
    yield _said("anchors.inject", anchors.inject, f"{why}; or set it to 0")


def _others(config: TrainConfig, algorithm: AlgorithmSpec) -> Iterator[str]:
    rollout, wanted = config.rollout, algorithm.dynamic_sampling
    if config.filter.dynamic == "on" and not most_extra_groups(config, wanted_by_algorithm=wanted):
        yield _said(
            "filter.dynamic",
            "on",
            f"filter.dynamic_extra={config.filter.dynamic_extra:g} of rollout.groups_per_step={rollout.groups_per_step} is "
            "no whole group: raise one of them",
        )
    if rollout.engines > rollout.workers:
        yield _said(
            "rollout.engines",
            rollout.engines,
            f"rollout.workers={rollout.workers} ask no more than one each: raise workers, or lower engines",
        )
    yield from _routes(config)
    for route in config.reward.routes:
        if route.turn_weight != 1 and route.options.get("gives") == "outcome":
            yield _said(
                f"turn_weight of the reward worker {route.worker!r}",
                route.turn_weight,
                "it is asked for the outcome only: set its option gives to turns or both",
            )


def _routes(config: TrainConfig) -> Iterator[str]:
    """Yield what is to be said of routes to which none of some tasks, drawn at random, comes."""
    if not any(route.match for route in config.reward.routes) and len(config.reward.routes) < 2:
        return
    asked, taken = 0, set[int]()
    known: set[str] = set()
    for env in open_environments(config):
        for task_id in task_ids(env.source, config.train_split, _ROUTED_TASKS, derive(config.seed, "routes")):
            split, _, index = task_id.rpartition("/")
            fields = route_fields(env.spec.name, env.source.get(split, int(index)))
            asked, known = asked + 1, known | fields.keys()
            taken.update([n for n, route in enumerate(config.reward.routes) if fits(route, fields)][:1])
    for number, route in enumerate(config.reward.routes):
        if number not in taken:
            yield _said(
                f"reward.routes[{number}].match",
                route.match,
                f"none of {asked} tasks drawn from {config.train_split!r} comes to {route.worker!r}, because of it or of a "
                f"route before; the fields to match are {', '.join(sorted(known))}",
            )


def _has_experts(config: TrainConfig) -> bool:
    return bool(config.warmup.data or config.warmup.trajectories)


def _said(name: str, value: object, why: str) -> str:
    return f"{name}={value!r} has no effect: {why}."
