"""The picture of a run: held-out success over environment steps, raw and as a share of the optimum; below it what there was
to learn from, the share of groups with different outcomes and the policy's entropy. And the picture of several runs.

Reads `metrics.jsonl` only; matplotlib is optional and needs no display.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ale.training.reading import Measured, read_metrics

__all__ = ["comparison", "success_curve"]

_OF_ENV = re.compile(r"env/.+/success")


def success_curve(run_folder: Path) -> Path | None:
    """Write `success.png` into the run folder and return its path, or None if nothing was evaluated yet.

    Raise `ImportError` without matplotlib.
    """
    records = read_metrics(run_folder)
    evaluations = [record for record in records if record["kind"] == "eval"]
    if not evaluations:
        return None
    figure = _figure(6)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    env_steps = [record["env_steps"] for record in evaluations]
    axes.plot(
        env_steps, [record["success"] for record in evaluations], marker="o", label="success (held out)"
    )
    low, high = (
        [record.get(f"success_{end}", math.nan) for record in evaluations] for end in ("low", "high")
    )
    axes.fill_between(env_steps, low, high, alpha=0.2, linewidth=0, label="95 % interval")
    share = [record.get("share_of_optimum", math.nan) for record in evaluations]
    axes.plot(env_steps, share, "--", marker=".", label="share of the optimum (held out)")
    for name in sorted({name for record in evaluations for name in record if _OF_ENV.fullmatch(name)}):
        axes.plot(
            env_steps,
            [record.get(name, math.nan) for record in evaluations],
            linewidth=1,
            label=f"{name.removeprefix('env/').removesuffix('/success')} (held out)",
        )
    rollouts = [record for record in records if record["kind"] == "train" and "success" in record]
    axes.plot(
        [record["env_steps"] for record in rollouts],
        [record["success"] for record in rollouts],
        color="0.7",
        linewidth=1,
        zorder=0,
        label="success (training rollouts, all starts)",
    )
    if any(record["kind"] == "warmup" for record in records):
        axes.axvline(env_steps[0], color="0.5", linestyle=":", label="end of the warm-up")
    _draw_signal(below, [record for record in records if record["kind"] == "train" and "groups" in record])
    axes.set(ylabel="success", ylim=(0, 1.05), title=run_folder.name)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    path = run_folder / "success.png"
    figure.savefig(path, dpi=120)
    return path


def comparison(groups: Mapping[str, Sequence[Sequence[Measured]]], path: Path) -> None:
    """Write a PNG with a line for each group of runs, by its name: the mean success of its runs over environment steps.

    A band shows the lowest and highest run of several, and the 95 % interval of one alone. Raise `ImportError` without
    matplotlib.
    """
    figure = _figure(4.5)
    axes = figure.add_subplot()
    for name, curves in groups.items():
        by_step = defaultdict(list)
        for each in (each for curve in curves for each in curve):
            by_step[each.step].append(each)
        met = [by_step[step] for step in sorted(by_step)]
        env_steps = [fmean(each.env_steps for each in here) for here in met]
        axes.plot(
            env_steps,
            [fmean(each.success for each in here) for here in met],
            marker="o",
            label=f" {name}",  # a label that begins with _ would be left out
        )
        low, high = ("success", "success") if len(curves) > 1 else ("success_low", "success_high")
        axes.fill_between(
            env_steps,
            [min(getattr(each, low) for each in here) for here in met],
            [max(getattr(each, high) for each in here) for here in met],
            alpha=0.2,
            linewidth=0,
        )
    axes.set(xlabel="environment steps", ylabel="success (held out)", ylim=(0, 1.05))
    axes.grid(alpha=0.3)
    for text in axes.legend(loc="best").get_texts():
        text.set_parse_math(False)
    figure.savefig(path, format="png", dpi=120)


def _figure(height: float) -> Any:
    """Return a figure of 7 by `height` inches that needs no display."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    return Figure(figsize=(7, height), layout="constrained")


def _draw_signal(axes: Any, records: list[dict[str, Any]]) -> None:
    """Draw what the steps had to learn from."""
    env_steps = [record["env_steps"] for record in records]
    mixed = [record["mixed_groups"] / record["groups"] for record in records]
    entropy = [record["entropy"] for record in records]
    beside = axes.twinx()
    lines = [
        *axes.plot(env_steps, mixed, color="tab:green", linewidth=1, label="groups with different outcomes"),
        *beside.plot(env_steps, entropy, color="tab:red", linewidth=1, label="entropy"),
    ]
    axes.set(xlabel="environment steps", ylabel="share of groups", ylim=(0, 1.05))
    beside.set(ylabel="nats per token", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(handles=lines, loc="upper right")
