"""ALE from Python: `train` and `evaluate`, the same functions the command line calls.

Imports torch and Ray (through the trainer). Settings come resolved: see `ale.config.resolve`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from agent_runtime.types import Trajectory
from ale.config import expand
from ale.terminal import stderr
from ale.training import plots, runs
from ale.training.model_play import play_tasks
from ale.training.progress import PlainProgress
from rock_env import plugins
from rock_env.errors import InvalidArgument, UnknownName
from rock_env.platforms import check_hosting
from trainer.config import TrainConfig
from trainer.environments import Environment, name_of, open_environments
from trainer.errors import ConfigError, Halted, NothingToLearn
from trainer.evaluation import evaluation_of, mixed
from trainer.idle import idle_settings
from trainer.learners.versions import check_lag
from trainer.lineage import MODEL
from trainer.loop import train as train_loop
from trainer.metrics import METRICS, Evaluation, Observer, RunSummary, read_summary
from trainer.models.chosen import check_model, learner_of, memory_of, sampler_of
from trainer.models.fitting import settled
from trainer.models.placed import check_placement
from trainer.rollout.cli_agents import agent_options
from trainer.rollout.experts import check_data
from trainer.rollout.tasks import is_sample, task_ids
from trainer.stopping import too_slow

__all__ = ["evaluate", "train"]


def train(
    config: TrainConfig,
    *,
    run_folder: Path | None = None,
    resume: bool = False,
    ray_address: str | None = None,
    observer: Observer | None = None,
) -> RunSummary | None:
    """Train as `config` says; leave settings, metrics, records, model and `success.png` in the run folder.

    `run_folder` defaults to `runs/ENV-ALGO-seedN`. Return None when the observer stopped the run. Raise
    `ConfigError`, `RunFolderError` (the folder is in use), other `TrainerError`s, or `RockError`.
    """
    config = expand(config)
    folder = run_folder or runs.locate(runs.default_name(config))
    watcher = observer or PlainProgress(stderr())
    if resume:
        config = _checked(runs.continue_run(folder, config))
        finished = read_summary(folder)
        if finished is not None and (folder / MODEL).is_dir():
            watcher.on_log(
                f"note: the run in {folder} has finished, nothing is left to do. `ale eval` measures its model, and "
                "`ale train --from` begins another run with it."
            )
            return finished
        for changed in runs.keep_config(folder, config):
            watcher.on_log(f"note: {changed}")
        if slow := too_slow(folder):
            watcher.on_log(f"note: {slow}")
    else:
        config, chosen = settled(_opened(config), elsewhere=bool(ray_address))
        check_placement(config, memory_of(config))
        check_lag(config)
        for notice in [*([chosen] if chosen else []), *idle_settings(config)]:
            watcher.on_log(f"note: {notice}")
        _check_tasks(config)
        _check_data(config)
        runs.open_new(folder, config)
    try:
        summary = train_loop(config, folder, observer=watcher, resume=resume, ray_address=ray_address)
    except (ConfigError, InvalidArgument, UnknownName) as error:
        if not resume:  # what must be set otherwise is no run to resume
            runs.withdraw(folder, opened=isinstance(error, NothingToLearn))
        raise
    if not (folder / METRICS).exists():
        return summary  # stopped as it began
    try:
        plots.success_curve(folder)
    except ImportError as error:
        watcher.on_log(f"No success.png: {error}. Install it with: pip install matplotlib")
    return summary


def evaluate(config: TrainConfig, *, ray_address: str | None = None) -> Evaluation:
    """Measure `config.model` on `eval.tasks` tasks of `eval.split`, from their true start, and `eval.samples` times each.

    With a run's settings and its exported model this repeats the run's last greedy evaluation. Failed rollouts are left out
    and counted. Raise `Halted` if all failed, other `TrainerError`s, or `RockError`.
    """
    config = _checked(expand(config))
    trajectories = play_tasks(config, ray_address=ray_address, sampled=True)
    done = [trajectory for trajectory in trajectories if trajectory.has_reward]
    if not done:
        failure = trajectories[0].failure
        assert failure is not None
        raise Halted(
            f"all {len(trajectories)} episodes failed to run, the first with {failure.code}: {failure.message} Success on "
            "none is no number: mend the cause, then evaluate again."
        )
    found: dict[str, Evaluation] = {}
    for env in open_environments(config):
        several = len(config.shares) > 1
        found[env.name] = _measured(env, [t for t in trajectories if not several or name_of(t) == env.name])
    if len(found) == 1:
        return found[config.env]
    return mixed(found, {each.env: float(each.share) for each in config.shares})


def _measured(env: Environment, trajectories: Sequence[Trajectory]) -> Evaluation:
    samples = [trajectory for trajectory in trajectories if is_sample(trajectory)]
    trajectories = [trajectory for trajectory in trajectories if not is_sample(trajectory)]
    done = [trajectory for trajectory in trajectories if trajectory.has_reward]
    places = [trajectory.task_id.rpartition("/") for trajectory in trajectories]
    optima = [env.spec.optimum(env.params, env.source.get(split, int(index))) for split, _, index in places]
    if not done:
        raise Halted(
            f"all {len(trajectories)} episodes of {env.name} failed to run: success on none is no number. Mend the cause, "
            "then evaluate again."
        )
    return evaluation_of(0, trajectories, sum(optima) / len(optima), samples=samples)


def _check_tasks(config: TrainConfig) -> None:
    """Raise `ConfigError` for a split that is asked for and has no task, before a folder or process is made.

    Raise `InvalidArgument` where a generator of tasks draws none for it.
    """
    for env in open_environments(config):
        for split in (config.train_split, config.eval.split, *config.eval.apart):
            task_ids(env.source, split, 1, seed=0)
            env.source.get(split, 0)


def _check_data(config: TrainConfig) -> None:
    if config.warmup.data:
        check_data(config.warmup.data, environments=open_environments(config), split=config.train_split)


def _check_server(config: TrainConfig) -> None:
    """Refuse an environment of one's own on a server that was started without it."""
    mine = [each.env for each in config.shares if ("ale.envs", each.env) in plugins.own()]
    if mine and config.rollout.rock_address:
        raise ConfigError(
            f"the server at {config.rollout.rock_address} does not know the environment {mine[0]!r} that you gave. "
            "Leave rollout.rock_address out, or start that server with --env MODULE:OBJECT and give the name alone."
        )


def _checked(config: TrainConfig) -> TrainConfig:
    """Return the config; refuse a model that does not open, and processes that do not fit, before any of them starts."""
    config = _opened(config)
    check_placement(config, memory_of(config))
    return config


def _opened(config: TrainConfig) -> TrainConfig:
    check_hosting(sys.platform)
    _check_server(config)
    if not config.learner:
        check_model(config.model)
    spec, options = learner_of(config)
    sampler_of(config)
    agent_options(config)
    spec.template(config.model, options)
    return config
