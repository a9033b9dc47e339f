"""What `rollout.mode=stream` saves, and what real staleness costs: by runs of `ale train`, in turns with `mode=sync`.

    python -m benchmarks.stream [--quick] [--part swe lake staleness] [--seeds N] [--first-seed 730]

All with `rollout.batching=eager`. The last line is one JSON object:

- `swe`: on `slower_swe` (benchmarks/slow_swe.py: a command sleeps in the box before each tool call, median .25 s, 99th
  percentile 7.5 s, a quarter of what tools take), as the recipe of `swe` trains, lag 2. By seed `wall_ratio`, the wall
  time of the steps of `stream` over that of `sync` at equal updates (goal: at most 1/1.3), and `success_less_sync` on 64
  held-out tasks, with its mean and 95 % bootstrap interval (goal: the mean at least -.10);
- `lake`: `speed_over_sync` on plain `frozen_lake`, where nothing waits: time of the steps of `sync` over those of
  `stream` with lag 1 (goal: the median at least .95);
- `staleness`: on chains of three forks of `fork_chain` with `window_turns=0`, whose answers have several tokens, 12 steps,
  by algorithm (ipa, grpo) and lag (0, 1, 4): `lag_mean`, the realised mean age of what was learned, `too_old`, the share of
  tokens masked, and `success` by seed and with its interval over the seeds.

Defaults: 3 seeds, and 5 of `staleness`. `--quick`: one pair of 6 steps of `lake`.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.pipeline import steps_of
from benchmarks.runs import settings_words, train, train_rows
from benchmarks.scaffold import commit, finish, parser_of, say
from benchmarks.slow_swe import variables
from benchmarks.statistics import mean_interval
from trainer.metrics import read_summary

PARTS = ("swe", "lake", "staleness")
LAGS, ALGORITHMS = (0, 1, 4), ("ipa", "grpo")
SHORT_CHAIN: dict[str, object] = {
    "env_args.length": 3,
    "env_args.crucial": 1,
    "agent.window_turns": 0,
    "warmup.trajectories": 512,
    "warmup.batch_trajectories": 8,
    "warmup.epochs": 10,
    "rollout.groups_per_step": 32,
    "optim.minibatches": 8,
    "steps": 12,
    "eval.every": 0,
    "eval.tasks": 100,
    "eval.apart_tasks": 1,
}
"""With all turns in the prompt the recipe's 64 experts are learned by heart, and eight forks are not learned in minutes."""


def run(
    folder: Path,
    env: str,
    lag: int,
    settings: Mapping[str, object],
    *,
    seed: int,
    algo: str = "ipa",
    begin: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Train in a stream with this lag, or synchronously with 0; return the time of its steps, its success and its lag."""
    mode = {
        "rollout.mode": "stream" if lag else "sync",
        "rollout.staleness": lag,
        "rollout.batching": "eager",
    }
    words = [*(begin or ("--env", env)), "--algo", algo, "--seed", str(seed)]
    words += settings_words({**settings, **mode})
    train(folder, words, environment=environment)
    rows = train_rows(folder)
    tokens = sum(row["tokens/total"] for row in rows)
    summary = read_summary(folder)
    found = {
        "steps_s": steps_of(folder)["steps_s"],
        "success": summary.success_final if summary else math.nan,
        "lag_mean": mean([row["lag/mean"] for row in rows if "lag/mean" in row] or [0.0]),
        "too_old": sum(
            row.get(f"tokens/{fate}/too_old", 0.0) for row in rows for fate in ("masked", "dropped")
        )
        / max(tokens, 1.0),
    }
    told = {name: round(number, 3) for name, number in found.items()}
    say(f"{env} {algo} lag {lag} seed {seed}: {told}, load {os.getloadavg()[0]:.1f}")
    return found


def in_turns(
    folder: Path, env: str, lag: int, settings: Mapping[str, object], seeds: Sequence[int], **more: Any
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return by seed a run of `sync` and one of `stream`, every second pair in the other order."""
    found = []
    for number, seed in enumerate(seeds):
        lags = (0, lag) if number % 2 == 0 else (lag, 0)
        own = {
            each: run(folder / f"{env}-{seed}-{each}", env, each, settings, seed=seed, **more)
            for each in lags
        }
        found.append((own[0], own[lag]))
    return found


def swe(folder: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Return what a stream saves and keeps where tools take long."""
    site = folder / "site"
    site.mkdir()
    command = [sys.executable, "-m", "ale", "train", "--env", "swe", "--algo", "ipa", "--dry-run"]
    recipe = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    config = folder / "slower_swe.toml"
    config.write_text(recipe.replace('env = "swe"', 'env = "slower_swe"', 1))
    begin, settings = ("--config", str(config)), {"eval.apart_tasks": 1}
    pairs = in_turns(folder, "slower_swe", 2, settings, seeds, begin=begin, environment=variables(site))
    ratios = [stream["steps_s"] / sync["steps_s"] for sync, stream in pairs]
    apart = [stream["success"] - sync["success"] for sync, stream in pairs]
    return {
        "wall_ratio": [round(ratio, 3) for ratio in ratios],
        "wall_ratio_median": round(median(ratios), 3),
        "success_less_sync": [round(each, 3) for each in apart],
        "success_less_sync_mean": mean_interval(apart).rounded() if len(apart) > 1 else None,
        "too_old": round(mean(stream["too_old"] for _, stream in pairs), 3),
        "lag_mean": round(mean(stream["lag_mean"] for _, stream in pairs), 2),
    }


def lake(folder: Path, seeds: Sequence[int], steps: int) -> dict[str, Any]:
    """Return what a stream costs where nothing waits."""
    settings = {"steps": steps, "eval.every": 0, "eval.tasks": 8, "checkpoint.every": steps}
    pairs = in_turns(folder, "frozen_lake", 1, settings, seeds)
    ratios = [sync["steps_s"] / stream["steps_s"] for sync, stream in pairs]
    return {"speed_over_sync": round(median(ratios), 3), "ratios": [round(ratio, 3) for ratio in ratios]}


def staleness(folder: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Return by algorithm and lag what was learned, and how old it was."""
    found: dict[str, Any] = {}
    for algo in ALGORITHMS:
        for lag in LAGS:
            runs = [
                run(folder / f"{algo}-{lag}-{seed}", "fork_chain", lag, SHORT_CHAIN, seed=seed, algo=algo)
                for seed in seeds
            ]
            success = [each["success"] for each in runs]
            found[f"{algo} {lag}"] = {
                "lag_mean": round(mean(each["lag_mean"] for each in runs), 2),
                "too_old": round(mean(each["too_old"] for each in runs), 3),
                "by_seed": [round(each, 3) for each in success],
                "success": mean_interval(success).rounded() if len(success) > 1 else None,
            }
    return found


def main() -> int:
    parser = parser_of(__doc__, quick="one short pair of `lake`")
    parser.add_argument("--part", nargs="+", default=PARTS, choices=PARTS)
    parser.add_argument("--seeds", type=int, default=0, help="so many of each part; 0: its own number")
    parser.add_argument("--first-seed", type=int, default=730)
    options = parser.parse_args()
    found: dict[str, Any] = {"commit": commit()}
    with tempfile.TemporaryDirectory(prefix="ale-stream-") as name:
        folder = Path(name)
        if options.quick:
            return finish({**found, "lake": lake(folder, [options.first_seed], 6)})
        for part, count in (("swe", 3), ("lake", 3), ("staleness", 5)):
            seeds = range(options.first_seed, options.first_seed + (options.seeds or count))
            if part == "swe" and part in options.part:
                found[part] = swe(folder, seeds)
            elif part == "lake" and part in options.part:
                found[part] = lake(folder, seeds, 20)
            elif part in options.part:
                found[part] = staleness(folder, seeds)
    return finish(found)


if __name__ == "__main__":
    sys.exit(main())
