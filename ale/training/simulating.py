"""`ale simulate`: how long the steps of a run would take, who would stand still, and what would bound it.

The scheduler is the real one, in virtual time (`trainer.simulator`); nothing is played or learned.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pydantic import ValidationError

from agent_runtime.store import kept_segment, read_segment
from ale import config as configuration
from ale.errors import RecordError
from ale.terminal import stdout
from ale.training import runs
from ale.training.reading import read_metrics
from ale.waiting import waiting_for
from rock_env.arguments import problem
from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.records import PLAYED, SET_ASIDE
from trainer.scheduler.journal import asked_for
from trainer.simulator.fleet import FleetTimes, Recorded, Sampler
from trainer.simulator.run import Report, simulate

__all__ = ["SimulateCommand", "findings", "measured", "simulate_command"]

AS_MEASURED = Sampler(tokens_per_s=float("inf"), tokens_per_s_of_one=1)
"""A token is a second of sampling: what was recorded shared its engine already."""
_UNITS = ((3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True)
class SimulateCommand:
    """What the user typed."""

    file: Path | None
    fleet: Path | None
    run: str | None
    """The run whose records say what everything takes, and whose settings are the file below options."""
    lag: int | None
    """Of a stream to compare the settings with."""
    overrides: Sequence[str]
    as_json: bool


def simulate_command(command: SimulateCommand) -> None:
    """Simulate and print. Raise `ConfigError`, `RunFolderError` or `RecordError`, and what a run raises that halts."""
    if command.run is not None and (command.file or command.fleet):
        raise ConfigError(
            f"--from {command.run} brings the settings and times of that run: got --config or --fleet beside it, expected "
            "none. Change its settings with -s."
        )
    file, folder, streamed = (
        command.file,
        runs.locate(command.run) if command.run is not None else None,
        False,
    )
    if folder is not None:
        streamed = runs.recorded_config(folder).rollout.streams
        file = folder / runs.CONFIG
    changes = [()] if command.lag is None else [(), stream_settings(command.lag)]
    configs = [
        configuration.resolve(file=file, overrides=[*command.overrides, *own]).config for own in changes
    ]
    if not configs[0].steps:
        raise ConfigError("steps=0 leaves nothing to simulate: expected at least 1. Set steps.")
    fleet = measured(folder, streamed) if folder is not None else read_fleet(command.fleet)
    reports = [_simulated(config, fleet) for config in configs]
    if command.as_json:
        found = [report.summary() for report in reports]
        told = found[0] if len(found) == 1 else {"settings": found[0], f"lag {command.lag}": found[1]}
        stdout().print(json.dumps(told, indent=1))
        return
    for config, report in zip(configs, reports, strict=True):
        for line in findings(config, report):
            stdout().print(line)
    if len(reports) == 2:
        stdout().print(compared(command.lag or 0, *reports))


def stream_settings(lag: int) -> tuple[str, ...]:
    """Return the settings of a stream; with lag 0 it is `sync`."""
    return "rollout.mode=stream", "rollout.batching=eager", f"rollout.staleness={lag}"


def _simulated(config: TrainConfig, fleet: FleetTimes) -> Report:
    with TemporaryDirectory(prefix="ale-simulate-") as journal, waiting_for("the simulated steps"):
        return simulate(config, fleet, Path(journal))


def read_fleet(path: Path | None) -> FleetTimes:
    """Return what everything takes as a file says, or by default. Raise `ConfigError`."""
    if path is None:
        return FleetTimes()
    try:
        return FleetTimes.model_validate(configuration.read_toml(path))
    except ValidationError as error:
        name = ".".join(map(str, error.errors()[0]["loc"]))
        raise ConfigError(f"bad {name!r} in {path}: {problem(error)} (docs/simulate.md)") from error


def measured(folder: Path, streamed: bool = False) -> FleetTimes:
    """Return what the steps of a run took, by its records; one that `streamed` waited for no plan. Raise `RecordError` where
    it has none."""
    steps = {record["step"]: record for record in read_metrics(folder) if record["kind"] == "train"}
    recorded = [
        step
        for number, record in sorted(steps.items())
        if (step := _measured(folder, number, record, steps.get(number - 1), streamed)) is not None
    ]
    if not recorded:
        raise RecordError(
            f"nothing was measured in {folder}: got no step with its rollouts, expected at least one. Let the run do a "
            "step, or say with --fleet what everything takes."
        )
    return FleetTimes(sampler=AS_MEASURED, recorded=tuple(recorded))


def _measured(
    folder: Path, step: int, record: dict[str, Any], before: dict[str, Any] | None, streamed: bool
) -> Recorded | None:
    """Return what a step took; None where no rollout of it is on record. All attempts at one took their times in turn."""
    took = defaultdict[str, list[tuple[int, float, float]]](list)
    for kind in (PLAYED, SET_ASIDE):
        path = kept_segment(folder, kind, step)
        for each in read_segment(path) if path.is_file() else ():
            sampled_s = sum(turn.sampled_s for turn in each.turns)
            took[asked_for(each.id)].append((len(each.turns), sampled_s, each.duration_s))
    if not took:
        return None
    rollouts = [tuple(map(sum, zip(*tries, strict=True))) for tries in took.values()]
    for name in ("rollout_s", "learn_s", "train_s"):
        if not isinstance(record.get(name), int | float):
            raise RecordError(
                f"{folder / 'metrics.jsonl'}: step {step} has no {name}: got {record.get(name)!r}, expected seconds"
            )
    rollout_s, learn_s = record["rollout_s"], record["learn_s"]
    step_s = record["train_s"] - before["train_s"] if before else 0.0
    try:
        return Recorded(
            rollouts=rollouts,  # type: ignore[arg-type]
            beside_s=0.0 if streamed else max(0.0, rollout_s - max(all_s for _, _, all_s in rollouts)),
            learn_s=learn_s,
            other_s=max(0.0, step_s - rollout_s - learn_s),
        )
    except ValidationError as error:
        raise RecordError(f"the times of step {step} of {folder} are damaged: {problem(error)}") from error


def findings(config: TrainConfig, report: Report) -> list[str]:
    """Return what was found, a sentence each."""
    found, options = report.summary(), config.rollout
    step_s, idle, lag = found["step_s"], found["idle"], found["lag"]
    bound = sorted(found["bound"].items(), key=lambda item: -item[1])
    return [
        f"{config.steps} steps of {options.groups_per_step * options.group_size} rollouts (rollout.mode={options.mode}, "
        f"rollout.staleness={options.staleness}, rollout.batching={options.batching}) take {_told(report.total_s)}.",
        f"A step takes {_told(step_s['mean'])} on average, {_told(step_s['p50'])} at the median and "
        f"{_told(step_s['p99'])} at the 99th percentile.",
        f"Samplers are idle {idle['samplers']:.0%} of the time, environments {idle['environments']:.0%}, the learner "
        f"{idle['learner']:.0%}.",
        f"Rollouts are learned {lag['mean']:.2g} versions behind on average, {lag['most']:.0f} at most."
        + (f" {lag['too_old']:.1%} of their tokens are too old to be learned." if options.streams else ""),
        f"Bound by: {', '.join(f'{name} {share:.0%}' for name, share in bound)}.",
    ]


def compared(lag: int, settings: Report, stream: Report) -> str:
    """Return what a lag would change."""
    times = settings.total_s / stream.total_s if stream.total_s else 1.0
    return (
        f"With --lag {lag} the steps take {_told(stream.total_s)} instead of {_told(settings.total_s)}: "
        f"{times:.2f} times as fast."
    )


def _told(seconds: float) -> str:
    amount, unit = next((seconds / size, unit) for size, unit in _UNITS if seconds >= 10 * size or size == 1)
    return f"{amount:.3g} {unit}"
