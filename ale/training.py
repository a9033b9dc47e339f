"""`ale train`: from parsed options to a run folder with a result and a picture.

Called by `ale.cli`. Settings are resolved, shown or refused before anything heavy starts; the learning itself is `ale.api`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ale import config as configuration
from ale import runs
from ale.progress import LiveProgress, PlainProgress
from trainer.config import TrainConfig

__all__ = ["TrainCommand", "train_command"]

EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class TrainCommand:
    """What the user typed."""

    named: Mapping[str, object]
    overrides: Sequence[str]
    file: Path | None
    run: str | None
    resume: bool
    ray_address: str | None
    quiet: bool
    dry_run: bool


def train_command(command: TrainCommand) -> int:
    """Run it and return the exit code: 0, or 130 when the user stopped the run."""
    console = Console(stderr=True)
    resolved = _resolve(command)
    for notice in resolved.notices:
        console.print(f"note: {notice}", markup=False, highlight=False, soft_wrap=True)
    config = resolved.config
    if command.dry_run:
        sys.stdout.write(configuration.render(config))
        return 0
    folder = runs.locate(command.run or runs.default_name(config))
    from ale import api  # brings torch and Ray, which a wrong option should not have to wait for

    progress: LiveProgress | PlainProgress
    if console.is_terminal and not command.quiet:
        progress = LiveProgress(console, title=folder.name)
    else:
        progress = PlainProgress(console, quiet=command.quiet)
    with progress.stop, progress.display():
        summary = api.train(
            config,
            run_folder=folder,
            resume=command.resume,
            ray_address=command.ray_address,
            observer=progress,
        )
    out = Console()
    if summary is None:
        again = f"ale train --resume --run {command.run or folder.name}"
        console.print(f"Saved. Continue with: {again}", markup=False, highlight=False, soft_wrap=True)
        return EXIT_INTERRUPTED
    out.print(
        f"{folder}: held-out success {summary.success_warmup:.3f} -> {summary.success_final:.3f} "
        f"({summary.share_warmup:.2f} -> {summary.share_final:.2f} of the optimum) "
        f"after {summary.steps} steps, {summary.train_s:.0f} s",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return 0


def _resolve(command: TrainCommand) -> configuration.Resolved:
    """Resolve the settings; a resumed run's own are the file that options are laid over."""
    file = command.file
    if command.resume and file is None:
        folder = runs.locate(command.run) if command.run else _default_folder(command)
        runs.recorded_config(folder)
        file = folder / runs.CONFIG
    return configuration.resolve(file=file, options=command.named, overrides=command.overrides)


def _default_folder(command: TrainCommand) -> Path:
    config: TrainConfig = configuration.resolve(options=command.named, overrides=command.overrides).config
    return runs.locate(runs.default_name(config))
