"""The environments of a run, opened: what each is, its arguments and its tasks. Nothing here plays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from agent_runtime.types import RolloutRequest, Trajectory
from rock_env.plugins import env_params, load_env
from rock_env.spec import EnvParams, EnvSpec, TaskSource
from trainer.config import TrainConfig

__all__ = ["Environment", "key_of", "name_of", "open_environments"]


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment of a run."""

    config: TrainConfig
    """The run's settings as they are for this environment."""
    spec: EnvSpec
    params: EnvParams
    source: TaskSource
    label: str = ""
    """Tells ids of rollouts of several environments apart."""

    @property
    def name(self) -> str:
        return self.config.env


def open_environments(config: TrainConfig) -> tuple[Environment, ...]:
    """Open all environments of a run, in the order named. Raise `UnknownName` or `InvalidArgument`."""
    several = len(config.shares) > 1
    return tuple(
        _opened(config.alone(each.env), f"{number}-" if several else "")
        for number, each in enumerate(config.shares)
    )


def _opened(config: TrainConfig, label: str) -> Environment:
    spec = load_env(config.env)
    params = env_params(spec, msgspec.json.encode(config.env_args).decode())
    return Environment(config, spec, params, spec.tasks(params), label)


def key_of(environments: Sequence[Environment]) -> str:
    """Return `NAME@VERSION` of each: what a run's records were made in."""
    return ",".join(each.spec.key for each in environments)


def name_of(played: Trajectory | RolloutRequest) -> str:
    """Return the name of the environment that a rollout belongs to."""
    return played.env.partition("@")[0]
