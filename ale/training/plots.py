"""The picture of a run: held-out success over environment steps, raw and as a share of the optimum; below it what there was
to learn from, the share of groups with different outcomes and the policy's entropy.

Reads `metrics.jsonl` only; matplotlib is optional and needs no display.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from ale.errors import RecordError
from rock_env.errors import InvalidArgument
from rock_env.foreign import budget

__all__ = ["read_metrics", "success_curve"]

_OF_ENV = re.compile(r"env/.+/success")


def read_metrics(run_folder: Path) -> list[dict[str, Any]]:
    """Return the records of `metrics.jsonl`; the torn last line of a killed run is left out.

    Raise `RecordError` when the file is missing or malformed before its last line.
    """
    path = run_folder / "metrics.jsonl"
    try:
        lines = budget.read_whole(path, str(path)).decode().splitlines()
    except (OSError, UnicodeDecodeError, InvalidArgument) as error:
        raise RecordError(f"cannot read {path}: {error}") from error
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            records.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            if number < len(lines):
                raise RecordError(f"{path} line {number} is not JSON: {error}") from error
    return records


def success_curve(run_folder: Path) -> Path | None:
    """Write `success.png` into the run folder and return its path, or None if nothing was evaluated yet.

    Raise `ImportError` without matplotlib.
    """
    records = read_metrics(run_folder)
    evaluations = [record for record in records if record["kind"] == "eval"]
    if not evaluations:
        return None
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6), layout="constrained")
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
