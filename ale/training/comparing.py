"""`ale compare`: several runs beside each other, as tables, JSON or a picture.

Runs that differ by their seed alone are one row. Reads run folders only (`ale.training.reading`).
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import typer

from ale import completion
from ale.errors import RecordError
from ale.terminal import WideOption, print_table, stderr, stdout
from ale.training import runs
from ale.training.plots import comparison
from ale.training.progress import duration
from ale.training.reading import RunRecord, read_run
from rock_env.store.whole_file import write_whole

__all__ = ["Alike", "alike", "compare", "differences"]

HEADS = ("run", "seeds", "before", "after", "interval", "steps", "env steps", "time")
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Alike:
    """Runs that have the same settings but for the seed."""

    name: str
    runs: Sequence[RunRecord]
    """By seed."""

    def mean(self, number: Callable[[RunRecord], float]) -> float:
        """Return the mean over the runs; NaN where one of them lacks the number."""
        return fmean(map(number, self.runs))

    def extent(self, number: Callable[[RunRecord], float]) -> tuple[float, float]:
        """Return the lowest and the highest of the runs; NaN likewise."""
        numbers = [number(run) for run in self.runs]
        return (math.nan, math.nan) if any(map(math.isnan, numbers)) else (min(numbers), max(numbers))


def compare(
    names: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Runs, by name or folder.", autocompletion=completion.runs),
    ],
    *,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="Draw their success over environment steps."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")] = False,
    _wide: WideOption = False,
) -> None:
    """Compare runs: their success, cost and the settings that differ; those that differ by seed alone are one row.

    `before` is the success on held-out tasks after the warm-up, `after` the newest one that was measured.
    """
    folders = {folder.resolve(): folder for folder in map(runs.locate, names)}
    groups = alike([read_run(folder) for folder in folders.values()])
    other = differences(groups)
    if as_json:
        sys.stdout.write(f"{json.dumps(_json(groups, other), indent=1)}\n")
    else:
        _print(groups, other)
    if plot is not None:
        _plot(groups, plot)


def alike(records: Sequence[RunRecord]) -> list[Alike]:
    """Return the runs in groups that differ by seed alone, in the order in which each group's first was given."""
    found: dict[str, list[RunRecord]] = {}
    for record in records:
        settings = {name: value for name, value in record.settings.items() if name != "seed"}
        found.setdefault(json.dumps(settings, sort_keys=True, default=str), []).append(record)
    several = Counter(record.folder.name for record in records)
    members = [
        [str(each.folder) if several[each.folder.name] > 1 else each.folder.name for each in group]
        for group in found.values()
    ]
    begun = [_beginning(names) if len(names) > 1 else "" for names in members]
    return [
        Alike(
            f"{prefix}*" if prefix and begun.count(prefix) == 1 else ", ".join(names),
            sorted(group, key=lambda each: each.seed or 0),
        )
        for names, prefix, group in zip(members, begun, found.values(), strict=True)
    ]


def _beginning(names: Sequence[str]) -> str:
    """Return what all begin with."""
    letters = zip(*names, strict=False)
    return "".join(each[0] for each in takewhile(lambda each: len(set(each)) == 1, letters))


def differences(groups: Sequence[Alike]) -> dict[str, list[Any]]:
    """Return the settings that are not the same in all groups, by name, with each group's value; None where it has none."""
    settings = [group.runs[0].settings for group in groups]
    names = dict.fromkeys(name for each in settings for name in each if name != "seed")
    values = {name: [each.get(name) for each in settings] for name in names}
    return {name: each for name, each in values.items() if any(value != each[0] for value in each)}


def _before(run: RunRecord) -> float:
    return run.curve[0].success if run.curve else math.nan


def _after(run: RunRecord) -> float:
    return run.curve[-1].success if run.curve else math.nan


def _print(groups: Sequence[Alike], other: dict[str, list[Any]]) -> None:
    print_table(HEADS, [_row(group) for group in groups], least=("env steps", "time"))
    if any(len(group.runs) > 1 for group in groups):
        stdout().print(
            "\nOf several seeds: the mean, and the lowest and highest; of one run: its 95 % interval."
        )
    if other:
        rows = [
            (name, *(_NONE if value is None else _text(value) for value in each))
            for name, each in other.items()
        ]
        stdout().print("\nsettings that differ")
        print_table(("setting", *(group.name for group in groups)), rows)


def _row(group: Alike) -> tuple[str, ...]:
    if len(group.runs) > 1:
        (low, high), form = group.extent(_after), "{:.3f} to {:.3f}"
    else:
        low, high = next(
            ((each.success_low, each.success_high) for each in group.runs[0].curve[-1:]), (math.nan, math.nan)
        )
        form = "[{:.3f}, {:.3f}]"
    steps, wanted = group.extent(lambda run: run.steps), group.runs[0].steps_wanted
    learned = f"{steps[0]:.0f}" if steps[0] == steps[1] else f"{steps[0]:.0f} to {steps[1]:.0f}"
    return (
        group.name,
        ", ".join(str(run.seed) for run in group.runs),
        _told(group.mean(_before), "{:.3f}".format),
        _told(group.mean(_after), "{:.3f}".format),
        _NONE if math.isnan(low + high) else form.format(low, high),
        learned if steps[0] == wanted else f"{learned} of {wanted}",
        _told(group.mean(lambda run: run.env_steps), "{:,.0f}".format),
        _told(group.mean(lambda run: run.train_s), duration),
    )


def _told(value: float, form: Callable[[float], str]) -> str:
    return _NONE if math.isnan(value) else form(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _json(groups: Sequence[Alike], other: dict[str, list[Any]]) -> dict[str, Any]:
    """Return everything; a number that nobody measured is null."""
    return {
        "groups": [
            {
                "name": group.name,
                "settings": {name: _plain(values[at]) for name, values in other.items()},
                "before": _spread(group, _before),
                "after": _spread(group, _after),
                "runs": [
                    {
                        "folder": str(run.folder),
                        "seed": run.seed,
                        "steps": run.steps,
                        "steps_wanted": run.steps_wanted,
                        "env_steps": _finite(run.env_steps),
                        "train_s": _finite(run.train_s),
                        "curve": [
                            {name: _finite(value) for name, value in each._asdict().items()}
                            for each in run.curve
                        ],
                    }
                    for run in group.runs
                ],
            }
            for at, group in enumerate(groups)
        ]
    }


def _spread(group: Alike, number: Callable[[RunRecord], float]) -> dict[str, float | None]:
    low, high = group.extent(number)
    return {"mean": _finite(group.mean(number)), "lowest": _finite(low), "highest": _finite(high)}


def _plain(value: Any) -> Any:
    """Return a setting as JSON has it, which knows no infinity."""
    return value if isinstance(value, str | list | int | None) else _finite(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _plot(groups: Sequence[Alike], path: Path) -> None:
    curves = {group.name: [run.curve for run in group.runs if run.curve] for group in groups}
    curves = {name: each for name, each in curves.items() if each}
    if not curves:
        raise RecordError(
            "nothing to draw: none of the runs has been evaluated yet. Let one end its warm-up."
        )
    try:
        write_whole(path, lambda beside: comparison(curves, beside))
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}. Name another file.") from error
    stderr().print(f"written: {path}")
