"""`ale.train`: a run from a Python script, with environments, algorithms and rewards that nobody installed.

It names and checks what it is given, and resolves the settings as the command line does; the run is `ale.api`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ale import api
from ale import config as configuration
from ale.own_class import is_class
from ale.terminal import stderr
from ale.training import runs
from ale.training.probe import probed
from ale.training.progress import PlainProgress
from rock_env import plugins
from rock_env.games.own import class_env
from rock_env.spec import EnvSpec
from trainer.algo.base import AlgoOptions, Algorithm, AlgorithmSpec
from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.metrics import Observer, RunSummary
from trainer.protocols.engines import EngineSpec
from trainer.reward.base import Answer, RewardSpec, Sample
from trainer.reward.rule import rule_spec
from trainer.rollout.own import digest_of, name_of, packed

__all__ = ["train"]

Reward = Callable[[Sample], Answer | float]
_KINDS: dict[str, tuple[str, Any]] = {
    "env": ("ale.envs", EnvSpec),
    "algo": ("ale.algorithms", AlgorithmSpec),
    "model": ("ale.engines", EngineSpec),
    "reward": ("ale.rewards", RewardSpec),
}


def train(
    *,
    env: str | EnvSpec | type | None = None,
    algo: str | AlgorithmSpec | Algorithm | None = None,
    reward: str | RewardSpec | Reward | Mapping[str, Any] | None = None,
    model: str | EngineSpec | None = None,
    run: str | Path | None = None,
    resume: bool = False,
    observer: Observer | None = None,
    ray_address: str | None = None,
    **settings: Any,
) -> RunSummary | None:
    """Train a model and return what came of it; None where the observer stopped the run.

        import ale

        def short(sample):
            return 1.0 / len(sample.trajectory.turns) if sample.trajectory.passed else 0.0

        ale.train(env="frozen_lake", algo="grpo", reward=short, steps=20, optim={"lr": 1e-3})

    `env`, `algo`, `reward` and `model` are names, as on the command line, or objects that need no entry point: a class with
    `reset` and `step` (docs/environments.md), or an `EnvSpec`; an `AlgorithmSpec`, or any object with `credit`, `loss` and
    `needs_prox`; a function that takes a `Sample` and returns the reward of the outcome (or an `Answer`), which rewards each
    training rollout; an `EngineSpec`. A mapping for `reward` is that section of the settings. `settings` are all other
    options by name, sections as mappings (`optim={"lr": 1e-3}`): what is left out comes from the environment's recipe and
    the defaults. `run` is a name in `runs/` or a folder.

    Objects are sent to other processes by value where they stand in a script or notebook; what they import must be
    installed there, or lie where this process finds it. An environment of your own needs the embedded server.

    The run folder records the names of your objects, not the objects: `ale train --resume`, `ale eval` and `ale rollout
    --policy RUN` refuse such a run and say so. Continue it from Python, with the same objects and `resume=True`. A reward
    function whose code changed is asked anew. Raise `ConfigError`, `RunFolderError`, other `TrainerError`s, or `RockError`.
    """
    own: dict[tuple[str, str], object] = {}
    named = {
        **settings,
        "env": _name("env", class_env(env, name_of(env)) if isinstance(env, type) else env, own),
        "algo": _name("algo", _algorithm(algo), own),
        "model": _name("model", model, own),
    }
    if isinstance(reward, Mapping):
        named["reward"] = dict(reward)
    elif (worker := _name("reward", _reward(reward), own)) is not None:
        named["reward"] = {"routes": [{"worker": worker}]}
    with plugins.given(own):
        for (_, name), plugin in plugins.own().items():
            packed(f"object {name!r}", plugin)
        folder = runs.locate(str(run)) if run is not None else None
        config = _resumed(named, folder) if resume else _begun(named, observer)
        return api.train(config, run_folder=folder, resume=resume, observer=observer, ray_address=ray_address)


def _resumed(named: Mapping[str, Any], folder: Path | None) -> TrainConfig:
    """Return the settings of a run that goes on."""
    if folder is None:
        raise ConfigError("resume=True continues a run: name it with run=NAME or its folder.")
    runs.recorded_config(folder)
    return configuration.resolve(file=folder / runs.CONFIG, options=named).config


def _begun(named: Mapping[str, Any], observer: Observer | None) -> TrainConfig:
    """Return the settings of a new run; a class is tried first."""
    config = configuration.resolve(options=named).config
    if not is_class(config.env):
        return config
    say = (observer or PlainProgress(stderr())).on_log
    return probed(config, lambda layer: configuration.resolve(options=named, before=layer), say).config


def _algorithm(algo: str | AlgorithmSpec | Algorithm | None) -> str | AlgorithmSpec | None:
    """Return a plugin for an object that is only an algorithm."""
    if algo is None or isinstance(algo, str | AlgorithmSpec):
        return algo
    if isinstance(algo, type) or not all(hasattr(algo, name) for name in ("credit", "loss", "needs_prox")):
        raise ConfigError(
            f"algo must be a name, an AlgorithmSpec or an object with credit, loss and needs_prox, got {algo!r}. A class is "
            "none: give an instance of it."
        )
    made = algo
    summary = (type(algo).__doc__ or "an algorithm of your own").partition("\n")[0]
    return AlgorithmSpec(name_of(algo), summary, AlgoOptions, lambda options: made)


def _reward(reward: str | RewardSpec | Reward | None) -> str | RewardSpec | None:
    """Return a plugin for a function."""
    if reward is None or isinstance(reward, str | RewardSpec):
        return reward
    if not callable(reward):
        raise ConfigError(
            f"reward must be a name, a RewardSpec or a function that takes a Sample and returns a number, got {reward!r}."
        )
    return rule_spec(name_of(reward), reward, digest_of(reward))


def _name(option: str, given: object, own: dict[tuple[str, str], object]) -> str | None:
    """Return the name of what was given, and note an object; None where nothing was."""
    if given is None or isinstance(given, str):
        return given
    group, kind = _KINDS[option]
    if not isinstance(given, kind):
        too = "a class with reset and step, " if option == "env" else ""
        raise ConfigError(
            f"{option} must be a name, {too}or an object of type {kind.__name__}, got {given!r}."
        )
    own[group, given.name] = given
    return str(given.name)
