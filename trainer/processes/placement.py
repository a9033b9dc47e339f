"""Where the processes of a run are: Ray, the bundles of its placement group, and the actors in them.

Local by default; an address joins a cluster, where run folder and ROCK address must be reachable from every node. It places
and starts; `fleet` calls what it started.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rock_env.plugins import NO_OWN, own
from trainer.config import TrainConfig
from trainer.errors import ConfigError, Halted
from trainer.models.chosen import asks_singly
from trainer.models.placed import processes
from trainer.processes.asked import BACK_S, AskedEngine, AskedReference
from trainer.processes.hosting import REACH_S
from trainer.processes.learner import Learner
from trainer.processes.ray_errors import answer_of, result_of
from trainer.processes.rewards import RewardActor
from trainer.processes.rollouts import RolloutWorker
from trainer.processes.samplers import InferenceActor, ReferenceActor, SteppedActor
from trainer.processes.watched import WATCH, WatchedActor
from trainer.reward.router import reward_spec
from trainer.rollout.own import Carried
from trainer.signals import ours_while_ray_starts

__all__ = ["Placed", "connect_ray", "place"]

_RESERVE_S = 60.0
"""How long Ray may take to reserve a run's bundles."""


def connect_ray(config: TrainConfig, address: str | None, stack: ExitStack) -> None:
    """Start Ray on this machine, or join a cluster, until the stack ends. Raise `ConfigError` or `Halted`."""
    if ray.is_initialized():
        return
    if address:
        _check_reachable(address)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        with ours_while_ray_starts():
            _start_ray(config, address)
    except Exception as error:  # boundary: Ray raises whatever it met, also a bare Exception
        what = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        if address:
            raise ConfigError(
                f"cannot reach {address}: {what}. Check --ray-address, or leave it out to train on this "
                "machine."
            ) from error
        raise Halted(
            f"cannot start Ray on this machine: {what}. Check the space in /tmp and /dev/shm, and Ray's own log in "
            "/tmp/ray."
        ) from error
    stack.callback(ray.shutdown)


def _start_ray(config: TrainConfig, address: str | None) -> None:
    if address:
        ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
        return
    pool = config.placement.pool
    ray.init(
        address="local",
        num_cpus=sum(bundle.cpus for bundle in pool) or _actors(config),
        include_dashboard=False,
        logging_level=logging.ERROR,
        log_to_driver=False,
    )


def _actors(config: TrainConfig) -> int:
    """Return how many actors a run without a pool has, each with a CPU."""
    return 1 + config.rollout.engines + config.rollout.workers + bool(config.reward.routes)


@dataclass(slots=True)
class Placed:
    """The actors of a run, ready."""

    learner: Any
    engines: list[Any]
    beside: list[Any]
    """The engines in the learner's bundle."""
    workers: list[Any]
    rewarder: Any
    """None where no reward has a worker of its own."""
    pids: list[int]
    policies: int
    """How many of the `pids` compute with a model: they are the first."""
    told_as: list[str]
    """Names under which the actors tell what they do (`trainer.processes.telling`): such as `sampler 2`, and what tells it
    from those of other runs."""
    start: Callable[[int], Awaitable[Any]]
    """Ends the engine of a number, from 0, and returns another in its place, ready. Raises `Lost`."""


def place(config: TrainConfig, rock_address: str, artifacts: str, stack: ExitStack) -> Placed:
    """Start all actors where `config` says, until the stack ends. Raise `ConfigError` or `Halted`."""
    rollout = config.rollout
    pool = _Pool(config)
    pool.reserve(stack)
    sampler = _sampler_class(config)
    references = [
        ray.remote(ReferenceActor).options(**pool.options("reference", number)).remote(config)
        for number in range(len(config.placement.reference))
    ]
    learner: Any = (
        ray.remote(Learner)
        .options(**pool.options("learner", 0))
        .remote(config, *map(AskedReference, references))
    )

    def engine(number: int) -> Any:
        return sampler.options(**pool.options("sampler", number)).remote(config)

    engines = [engine(number) for number in range(rollout.engines)]
    workers = [
        ray.remote(RolloutWorker)
        .options(max_concurrency=1000, **pool.options("environments", number))
        .remote(config, rock_address, _asked(config, engines, number), artifacts=artifacts)
        for number in range(rollout.workers)
    ]
    actors: list[Any] = [learner, *engines, *references, *workers]
    told_as = ["learner", *_numbered("sampler", engines), *_numbered("reference", references)]
    told_as += _numbered("worker", workers)
    rewarder: Any = None
    if config.reward.routes:
        rewarder = ray.remote(RewardActor).options(**pool.options("reward", 0)).remote(config, rock_address)
        actors.append(rewarder)
        told_as.append("rewards")
    stack.callback(_stop, actors)
    given = Carried(own()) if own() else NO_OWN
    told_as = [_unique(name) for name in told_as]
    result_of([actor.ready.remote(given, name) for actor, name in zip(actors, told_as, strict=True)])
    result_of(learner.prove_to.remote(engines[0].arrived.remote()))

    async def start(number: int) -> Any:
        ray.kill(actors[1 + number])
        actors[1 + number] = engine(number)
        told_as[1 + number] = _unique(f"sampler {number + 1}")
        await answer_of(actors[1 + number].ready.remote(given, told_as[1 + number]))
        return actors[1 + number]

    return Placed(
        learner=learner,
        engines=engines,
        beside=[engine for number, engine in enumerate(engines) if pool.is_with_learner("sampler", number)],
        workers=workers,
        rewarder=rewarder,
        pids=result_of([actor.process_id.remote() for actor in actors]),
        policies=1 + len(engines) + len(references),
        told_as=told_as,
        start=start,
    )


def _numbered(role: str, actors: Sequence[Any]) -> list[str]:
    return [f"{role} {number}" for number in range(1, len(actors) + 1)]


def _unique(name: str) -> str:
    return f"{name} {uuid4().hex}"


def _sampler_class(config: TrainConfig) -> Any:
    """Return the actors' class: one that steps, or one that answers batch after batch, watched where it may be lost."""
    remote: Any = ray.remote
    if asks_singly(config):
        return remote(SteppedActor)
    if config.rollout.streams:
        return remote(concurrency_groups={WATCH: 1})(WatchedActor)
    return remote(InferenceActor)


def _asked(config: TrainConfig, engines: Sequence[Any], worker: int) -> AskedEngine:
    """Return the engines that a worker asks: its own, and with `rollout.mode=stream` the others where that one is lost."""
    first = worker % len(engines)
    if not config.rollout.streams:
        return AskedEngine({first: engines[first]}, first)
    return AskedEngine(dict(enumerate(engines)), first, patience_s=BACK_S)


def _stop(actors: Sequence[Any]) -> None:
    for actor in actors:
        ray.kill(actor)


class _Pool:
    """What Ray is told of where each actor is: bundles of a placement group, or shares of whatever devices there are."""

    def __init__(self, config: TrainConfig) -> None:
        """Raise `ConfigError` where devices of the pool cannot be dealt."""
        self._config = config
        self._dealt = {(each.role, each.number): each for each in processes(config)}
        self._group: Any = None
        self._gpus = 0.0

    def reserve(self, stack: ExitStack) -> None:
        """Have Ray reserve the bundles until the stack ends. Raise `ConfigError` where it cannot."""
        placement = self._config.placement
        if not placement.pool:
            self._share_devices()
            return
        bundles: list[dict[str, float]] = [
            {"CPU": bundle.cpus, **({"GPU": bundle.gpus} if bundle.gpus else {})} for bundle in placement.pool
        ]
        machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        for number, bundle in enumerate(bundles):
            if not any(all(has.get(kind, 0) >= count for kind, count in bundle.items()) for has in machines):
                raise ConfigError(
                    f"bundle {number} of placement.pool is larger than every machine: wanted {_counts(bundle)}, found "
                    f"{'; '.join(map(_counts, machines)) or 'no machine'}. Make it smaller, or join a cluster with "
                    "--ray-address."
                )
        self._group = placement_group(bundles, strategy=placement.strategy)
        stack.callback(remove_placement_group, self._group)
        if not self._group.wait(_RESERVE_S):
            raise ConfigError(
                f"Ray could not reserve placement.pool within {_RESERVE_S:.0f} s: wanted "
                f"{'; '.join(map(_counts, bundles))} with strategy {placement.strategy}, found "
                f"{'; '.join(map(_counts, machines))}, of which other runs may hold some. Make it smaller, or choose "
                "another strategy."
            )

    def options(self, role: str, number: int) -> dict[str, Any]:
        """Return Ray's options of the actor with this number, from 0, in its role."""
        if self._group is None:
            computes = role in {"learner", "sampler"} or (role == "reward" and self._judges)
            return {"num_cpus": 1, "num_gpus": self._gpus if computes else 0}
        process = self._dealt[role, number + 1]
        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=process.bundle)
        return {"num_cpus": 1, "num_gpus": process.gpus, "scheduling_strategy": strategy}

    def is_with_learner(self, role: str, number: int) -> bool:
        """Return whether an actor is in the learner's bundle."""
        return self._group is not None and (
            self._dealt[role, number + 1].bundle == self._config.placement.learner
        )

    def _share_devices(self) -> None:
        found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        wanted = _actors(self._config)
        if found.get("CPU", 0.0) < wanted:  # Ray would wait for more without a word
            raise ConfigError(
                f"the Ray cluster has room for too few processes: wanted {wanted} CPUs, one each, found "
                f"{found.get('CPU', 0.0):g}. Join a larger one, or lower rollout.workers or rollout.engines."
            )
        self._gpus = min(1.0, found.get("GPU", 0.0) / (self._config.rollout.engines + 1 + self._judges))

    @property
    def _judges(self) -> bool:
        return any(reward_spec(route.worker).runs_model for route in self._config.reward.routes)


def _counts(resources: Mapping[str, float]) -> str:
    return " and ".join(
        f"{resources.get(kind, 0):g} {name}" for kind, name in (("CPU", "CPUs"), ("GPU", "GPUs"))
    )


def _check_reachable(address: str) -> None:
    """Raise `ConfigError` where nothing listens: Ray itself tries for minutes. One without a port is Ray's to find."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=REACH_S).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot reach the Ray cluster at {address}: {error}. Check --ray-address, or leave it out to train on "
            "this machine."
        ) from error
