"""What a step of a small game costs where the game is played in the worker's process, over the same with a ROCK server.

`python -m benchmarks.small_loop [--quick] [--env NAME]`. `ale train` runs with `rollout.games = auto` and `served`, by
turns, with the same seed. Processor time is that of the run's processes and of what its server started (`time/*` in
metrics.jsonl), between the first step and the last.

The last line is one JSON object: `env`, `steps` (of one run), `pairs`, `cpu_over_served` and `wall_over_served` (of a step,
the median of the pairs), `start_over_served` (of the seconds before the first step ends), `equal_weights` (whether all runs
ended with the same model, bit for bit).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median


def trained(folder: Path, env: str, steps: int, games: str) -> tuple[float, float, float, bytes]:
    """Train once; return processor seconds and seconds of a step, seconds to the end of the first, and the model."""
    subprocess.run(
        [
            *(sys.executable, "-m", "ale", "train", "--env", env, "--algo", "ipa", "--steps", str(steps)),
            *("--seed", "5", "--run", str(folder), "--quiet"),
            *("-s", f"rollout.games={games}", "-s", "eval.every=0", "-s", "eval.tasks=8"),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        check=True,
    )
    rows = [
        row
        for row in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
        if row["kind"] == "train"
    ]
    cpus = len(os.sched_getaffinity(0))
    used = [cpus * row["train_s"] * (1.0 - row["time/idle"]) for row in (rows[0], rows[-1])]
    wall = [row["train_s"] for row in (rows[0], rows[-1])]
    model = (folder / "model" / "model.safetensors").read_bytes()
    return (used[1] - used[0]) / (steps - 1), (wall[1] - wall[0]) / (steps - 1), wall[0], model


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="one pair of four steps instead of five of twelve"
    )
    parser.add_argument("--env", default="frozen_lake")
    options = parser.parse_args()
    steps, pairs = (4, 1) if options.quick else (12, 5)
    ratios: list[list[float]] = [[], [], []]
    models = set()
    with tempfile.TemporaryDirectory() as name:
        for pair in range(pairs):
            found = {}
            for games in ("auto", "served") if pair % 2 else ("served", "auto"):
                *found[games], model = trained(Path(name) / f"{pair}-{games}", options.env, steps, games)
                models.add(model)
            for kept, here, served in zip(ratios, found["auto"], found["served"], strict=True):
                kept.append(here / served)
    cpu, wall, start = (round(median(each), 3) for each in ratios)
    print(
        json.dumps(
            {
                "env": options.env,
                "steps": steps,
                "pairs": pairs,
                "cpu_over_served": cpu,
                "wall_over_served": wall,
                "start_over_served": start,
                "equal_weights": len(models) == 1,
            }
        )
    )
    return 0 if len(models) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
