"""ALE from Python: `train` and `evaluate`, the same functions the command line calls.

Imports torch and Ray (through the trainer). Settings come resolved: see `ale.config.resolve`.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from ale import plots, runs
from ale.config import expand
from ale.progress import PlainProgress
from trainer.config import TrainConfig
from trainer.loop import train as train_loop
from trainer.metrics import Observer, RunSummary

__all__ = ["train"]


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
    watcher = observer or PlainProgress(Console(stderr=True))
    if resume:
        runs.continue_run(folder, config)
    else:
        runs.open_new(folder, config)
    summary = train_loop(config, folder, observer=watcher, resume=resume, ray_address=ray_address)
    try:
        plots.success_curve(folder)
    except ImportError as error:
        watcher.on_log(f"No success.png: {error}. Install it with: pip install matplotlib")
    return summary
