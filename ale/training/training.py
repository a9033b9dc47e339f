"""`ale train` and `ale sft`: from parsed options to a run folder with a result and a picture.

Settings are resolved, shown or refused before anything heavy starts; the learning itself is `ale.api`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ale import config as configuration
from ale.own_class import is_class
from ale.terminal import stderr, stdout
from ale.training import runs
from ale.training.progress import LiveProgress, PlainProgress, bracketed, sampled
from ale.waiting import LIBRARIES, unsaid, waiting_for
from ale.watching.notifying import train_notifying
from ale.watching.observing import observing
from ale.watching.page import Page
from trainer import checkpoint
from trainer.config import TrainConfig, dealt
from trainer.copies.fetching import fetch
from trainer.errors import ConfigError
from trainer.signals import held

if TYPE_CHECKING:
    from trainer.metrics import Observer, RunSummary

__all__ = ["TrainCommand", "sft_overrides", "train_command"]

EXIT_INTERRUPTED = 130
_SHOWN_STEPS = 8


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
    begin_from: str | None = None
    """The run whose model this one begins with; to resume, the bucket to fetch the run from."""
    imitation: bool = False
    """`ale sft`: nothing but imitation."""
    notify: str | None = None
    notify_when: Sequence[str] = ()
    """Whom to tell what becomes of the run, and beyond which bounds of metrics (`ale.watching.notifying`)."""
    observe: Sequence[str] = ()
    """Who is told every record of metrics (`ale.watching.observing`)."""
    console: bool = False
    """Open the console on the run (`ale.watching.page`)."""

    @property
    def verb(self) -> str:
        return "sft" if self.imitation else "train"

    def folder(self, config: TrainConfig) -> Path:
        """Return where the run is kept."""
        env = runs.folder_name(config.env)
        default = f"{env}-sft-seed{config.seed}" if self.imitation else runs.default_name(config)
        return runs.locate(self.run or default)


def sft_overrides(*, experts: int | None, data: Sequence[str], held_out: float | None) -> list[str]:
    """Return the settings behind `ale sft`'s own options. Raise `ConfigError` where two contradict each other."""
    if experts is not None and data:
        raise ConfigError("--experts has the oracle play, --data takes what is recorded: choose one")
    chosen = [] if experts is None else [f"warmup.trajectories={experts}", "warmup.data=[]"]
    if data:
        # A name that is no file or folder here is a run's.
        places = [place if Path(place).exists() else str(runs.locate(place)) for place in data]
        chosen.append(f"warmup.data={json.dumps(places)}")
    return chosen if held_out is None else [*chosen, f"warmup.held_out={held_out}"]


def train_command(command: TrainCommand) -> int:
    """Run it and return the exit code: 0, or 130 when the user stopped the run."""
    with unsaid() if command.quiet else nullcontext():
        return _train_command(command)


def _train_command(command: TrainCommand) -> int:
    console = stderr()
    with waiting_for(LIBRARIES, from_start=True):
        resolved = _resolve(command)
    for notice in resolved.notices:
        console.print(f"note: {notice}")
    config = resolved.config
    if command.dry_run:
        from ale.training.resources import (
            checkpoint_lines,
            lesson_lines,
            resource_lines,
        )  # brings torch, as does
        from trainer.learners.versions import check_lag
        from trainer.models.chosen import check_model

        if not command.resume:  # a run that was begun keeps its settings
            check_lag(config)
            if not config.learner:
                check_model(config.model)
        sys.stdout.write(configuration.render(config))
        resources = resource_lines(config, elsewhere=bool(command.ray_address))
        told = [*lesson_lines(config), *_mixture(config), *resources, *checkpoint_lines(config)]
        sys.stdout.writelines(f"# {line}".rstrip() + "\n" for line in told)
        return 0
    folder = command.folder(config)
    progress: LiveProgress | PlainProgress
    if console.is_terminal and not command.quiet:
        progress = LiveProgress(console, title=folder.name)
    else:
        progress = PlainProgress(console, quiet=command.quiet)
    with progress.stop:
        summary = train_notifying(
            partial(_train, command, config, folder, progress),
            progress,
            folder,
            command.notify,
            command.notify_when,
        )
        if summary is None:
            _say_how_to_continue(command, folder, console)
            return EXIT_INTERRUPTED
        _print_result(command, folder, summary)
    return 0


def _train(
    command: TrainCommand,
    config: TrainConfig,
    folder: Path,
    progress: LiveProgress | PlainProgress,
    observer: Observer,
) -> RunSummary | None:
    with ExitStack() as stack:
        watcher = stack.enter_context(observing(observer, folder, command.observe))
        with waiting_for(LIBRARIES), held():
            from ale import api  # brings torch and Ray, which a wrong option should not have to wait for
        watcher.check()
        if progress.stop_requested:
            return None
        with held():  # its thread
            stack.enter_context(progress.display())
        if command.console:
            stack.enter_context(Page(folder, watcher.on_log))
        summary = api.train(
            config,
            run_folder=folder,
            resume=command.resume,
            ray_address=command.ray_address,
            observer=watcher,
        )
        watcher.outcome = "finished" if summary else "stopped"
        return summary


def _mixture(config: TrainConfig) -> list[str]:
    """Return what each of several environments gets of the first steps, and of the experts."""
    if len(config.shares) == 1:
        return []
    groups, wanted = config.rollout.groups_per_step, config.warmup.trajectories
    steps = [dealt(config.shares, step * groups, groups) for step in range(min(config.steps, _SHOWN_STEPS))]
    experts = dealt(config.shares, 0, wanted)
    told = ["", "groups of each environment in the first steps, and experts to record (docs/mixtures.md):"]
    for each in config.shares:
        played = " ".join(str(counts[each.env]) for counts in steps)
        recorded = max(1, experts[each.env]) if wanted and not config.warmup.data else 0
        told.append(f"  {each.env} {float(each.share):g}: {played}; {recorded} experts")
    return told


def _say_how_to_continue(command: TrainCommand, folder: Path, console: Console) -> None:
    again = f"ale {command.verb} --resume --run {command.run or folder.name}"
    if checkpoint.latest(folder / "checkpoints"):
        said = f"Saved. Continue with: {again}"
    elif (folder / runs.CONFIG).is_file():
        said = f"Stopped before there was anything to save. Continue with: {again}"
    else:
        said = "Stopped before the run began. Give the same command again to begin it."
    console.print(said)


def _print_result(command: TrainCommand, folder: Path, summary: RunSummary) -> None:
    out = stdout()
    was, now = summary.eval_warmup, summary.eval_final
    out.print(
        f"{folder}: held-out success {summary.success_warmup:.3f}{bracketed(was)} -> "
        f"{summary.success_final:.3f}{bracketed(now)} "
        f"({summary.share_warmup:.2f} -> {summary.share_final:.2f} of the optimum) "
        f"after {summary.steps} {'epochs' if command.imitation else 'steps'}, {summary.train_s:.0f} s"
    )
    for env, success in summary.envs_final.items():
        before, after = (bracketed(_of_env(record, env)) for record in (was, now))
        said = f"{env}: {summary.envs_warmup[env]:.3f}{before} -> {success:.3f}{after}"
        out.print(said)
    for split, success in summary.apart_final.items():
        before, after = (bracketed(record, of=f"/{split}") for record in (was, now))
        said = f"{split}: {summary.apart_warmup[split]:.3f}{before} -> {success:.3f}{after}"
        out.print(said)
    if tries := sampled(now):
        said = f"sampled: {', '.join(sampled(was))} -> {', '.join(tries)}"
        out.print(said)
    if summary.time_shares:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in summary.time_shares.items())
        out.print(f"processor time: {shares}")
    if summary.memory:
        sizes = [
            f"{role} {size['taken'] / 1e9:.2f} of {size['estimated'] / 1e9:.2f} GB"
            + (f" with passes of up to {size['tokens']:,} tokens" if "tokens" in size else "")
            for role, size in summary.memory.items()
            if "taken" in size
        ]
        said = f"memory taken, libraries included, of what was estimated: {', '.join(sizes) or 'not known'}"
        out.print(said)


def _of_env(record: Mapping[str, float], env: str) -> dict[str, float]:
    """Return what an evaluation's record says of one environment of several."""
    prefix = f"env/{env}/"
    return {name.removeprefix(prefix): value for name, value in record.items() if name.startswith(prefix)}


def _resolve(command: TrainCommand) -> configuration.Resolved:
    """Resolve the settings; a resumed run's own are the file that options are laid over."""
    copies = command.begin_from if (command.begin_from or "").startswith("s3://") else None
    if copies and (not command.resume or command.file or command.dry_run):
        raise ConfigError(
            f"--from {copies} fetches a run to continue: give --resume, no --config and no --dry-run"
        )
    if command.resume and command.file is None:
        command = replace(command, begin_from=None) if copies else command
        if command.begin_from is not None:
            raise ConfigError("--resume continues a run as it was begun: leave --from out")
        folder = command.folder(_layered(command, None).config)
        if copies and not (folder / runs.CONFIG).is_file():  # else the run is here, as after a restart
            with waiting_for(copies):
                step = fetch(copies, folder, stderr().print)
            stderr().print(f"note: fetched {step} of {copies} into {folder}")
        runs.recorded_config(folder)
        return _layered(command, folder / runs.CONFIG)
    resolved = _layered(command, command.file)
    if command.begin_from is not None or not is_class(resolved.config.env):
        return resolved
    if not command.dry_run:
        runs.check_free(command.folder(resolved.config))
    from ale.training.probe import probed  # brings torch

    return probed(
        resolved.config,
        lambda layer: _layered(command, command.file, layer),
        stderr().print,
    )


def _layered(
    command: TrainCommand, file: Path | None, before: configuration.Layer | None = None
) -> configuration.Resolved:
    if command.begin_from is not None:
        if command.named.get("model") is not None:
            raise ConfigError(f"--from {command.begin_from} brings that run's model: leave --model out")
        folder = runs.locate(command.begin_from)
        before = configuration.Layer(f"the run {command.begin_from}", runs.inherited(folder))
    return configuration.resolve(
        file=file,
        options=command.named,
        overrides=command.overrides,
        before=before,
        imitation=command.imitation,
    )
