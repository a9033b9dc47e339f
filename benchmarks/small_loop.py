"""What a step of a small game costs where the game is played in the worker's process, over the same with a ROCK server.

`python -m benchmarks.small_loop [--quick] [--env NAME]`. `ale train` runs with `rollout.games = auto` and `served`, by
turns, with the same seed. Processor time is that of the run's processes and of what its server started (`time/*` in
metrics.jsonl), between the first step and the last.

The last line is one JSON object: `env`, `steps` (of one run), `pairs`, `cpu_over_served` and `wall_over_served` (of a step,
the median of the pairs), `start_over_served` (of the seconds before the first step ends), `equal_weights` (whether all runs
ended with the same model, bit for bit).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.runs import train, train_rows
from benchmarks.scaffold import finish, parser_of


def trained(folder: Path, env: str, steps: int, games: str) -> tuple[float, float, float, bytes]:
    """Train once; return processor seconds and seconds of a step, seconds to the end of the first, and the model."""
    named = ("--env", env, "--algo", "ipa", "--steps", str(steps), "--seed", "5")
    settings = (f"rollout.games={games}", "eval.every=0", "eval.tasks=8")
    train(folder, [*named, *(word for setting in settings for word in ("-s", setting))])
    rows = train_rows(folder)
    cpus = len(os.sched_getaffinity(0))
    used = [cpus * row["train_s"] * (1.0 - row["time/idle"]) for row in (rows[0], rows[-1])]
    wall = [row["train_s"] for row in (rows[0], rows[-1])]
    model = (folder / "model" / "model.safetensors").read_bytes()
    return (used[1] - used[0]) / (steps - 1), (wall[1] - wall[0]) / (steps - 1), wall[0], model


def main() -> int:
    parser = parser_of(__doc__, quick="one pair of four steps instead of five of twelve")
    parser.add_argument("--env", default="frozen_lake")
    options = parser.parse_args()
    steps, pairs = (4, 1) if options.quick else (12, 5)
    ratios: list[list[float]] = [[], [], []]
    models = set()
    with tempfile.TemporaryDirectory() as name:
        for pair in range(pairs):
            taken = {}
            for games in ("auto", "served") if pair % 2 else ("served", "auto"):
                *taken[games], model = trained(Path(name) / f"{pair}-{games}", options.env, steps, games)
                models.add(model)
            for kept, here, served in zip(ratios, taken["auto"], taken["served"], strict=True):
                kept.append(here / served)
    cpu, wall, start = (round(median(each), 3) for each in ratios)
    found = {
        "env": options.env,
        "steps": steps,
        "pairs": pairs,
        "cpu_over_served": cpu,
        "wall_over_served": wall,
        "start_over_served": start,
        "equal_weights": len(models) == 1,
    }
    return finish(found, bad=len(models) != 1)


if __name__ == "__main__":
    sys.exit(main())
