"""Let a trained model play tasks from their true start: a small one in this process, any other through a fleet of actors.

Nothing is learned and nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent_runtime.store import decode
from agent_runtime.types import RolloutRequest, Trajectory
from ale import config as configuration
from ale.training import runs
from ale.waiting import waiting_for
from trainer.config import TrainConfig
from trainer.environments import open_environments
from trainer.models.chosen import check_model
from trainer.processes.here import is_small, play_here
from trainer.rollout.tasks import eval_requests, sample_requests, task_ids
from trainer.seeds import derive

__all__ = ["model_settings", "play_requests", "play_tasks"]


def model_settings(model: str, *, named: dict[str, object], overrides: list[str]) -> configuration.Resolved:
    """Resolve the settings to play with: those of the run that `model` names, or the recipe's for any other model.

    Raise `RunFolderError` for a run that has not exported its model yet.
    """
    folder = runs.locate(model)
    if not (folder / runs.CONFIG).is_file():
        check_model(model, also=runs.known())
        return configuration.resolve(options={**named, "model": model}, overrides=overrides)
    runs.check_own(folder)
    runs.check_settings(folder)
    trained_model = runs.trained_model(folder)
    resolved = configuration.resolve(file=folder / runs.CONFIG, options=named, overrides=overrides)
    trained = {**resolved.config.model_dump(), "model": str(trained_model)}
    return configuration.Resolved(TrainConfig.model_validate(trained), resolved.notices)


def play_tasks(
    config: TrainConfig,
    *,
    ray_address: str | None = None,
    artifacts: Path | None = None,
    sampled: bool = False,
) -> list[Trajectory]:
    """Play `eval.tasks` tasks of `eval.split` once each; the same ones, with the same seeds, as a run's evaluations.

    With `sampled`, play `eval.samples` more episodes of each as well. Of several environments as many of each. Raise
    `TrainerError` or `RockError`.
    """
    seed = derive(config.seed, "held-out tasks")
    requests: list[RolloutRequest] = []
    for env in open_environments(config):
        tasks = task_ids(env.source, config.eval.split, config.eval.tasks, seed)
        requests += eval_requests(env.config, env.params.canonical(), 0, tasks, label=env.label)
        if sampled:
            requests += sample_requests(env.config, env.params.canonical(), 0, tasks, label=env.label)
    return play_requests(config, requests, ray_address=ray_address, artifacts=artifacts)


def play_requests(
    config: TrainConfig,
    requests: Sequence[RolloutRequest],
    *,
    ray_address: str | None = None,
    artifacts: Path | None = None,
) -> list[Trajectory]:
    """Let the model play what is asked for, in order. Raise `TrainerError` or `RockError`.

    `artifacts` is the folder where what environments attach is kept; None: it is not.
    """
    waits_for_none = config.rollout.model_copy(update={"outage_s": 0.0})  # only a run waits for a server
    config = config.model_copy(update={"rollout": waits_for_none})
    waiting = f"episodes of {config.env} ({len(requests)} in all)"
    if ray_address is None and is_small(config):
        with waiting_for(waiting):
            return [decode(data) for data in play_here(config, requests, artifacts)]
    from trainer.processes.fleet import Fleet  # brings Ray

    starting = waiting_for("the processes that play: Ray, a ROCK server and the model")
    with starting as begun, Fleet(config, ray_address, artifacts) as fleet:
        fleet.publish(0)
        begun.now(waiting)
        encoded = fleet.run(requests, 0)
    return [decode(data) for data in encoded]
