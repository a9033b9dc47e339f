"""Does a run come out again? Every rollout by its actions, and every step's update by the records.

`python -m benchmarks.reproduce [--quick] [--write]`. A run is trained for each pair of environment and algorithm. Its
rollouts are sent to fresh environments and compared hash for hash; each step's update is computed again from the run's
folder and compared byte for byte, weights, optimizer and metrics. The last line is one JSON object: `rollouts` and
`hash_equal`, `steps` and `train_step_equal`, which should be equal, and how many optimizer `updates` the steps made.
`--quick` is one pair and three steps. `--write` writes docs/results/reproduce.md.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ale.replay.executing import replay_all
from ale.replay.records import iterate
from ale.replay.retraining import retrain
from benchmarks.runs import train
from benchmarks.scaffold import finish, markdown_table, parser_of, say, write_results

PAIRS = (("frozen_lake", "ipa"), ("frozen_lake", "ppo"), ("fork_chain", "ipa"), ("sokoban", "grpo"))
SETTINGS = (
    "warmup.trajectories=16",
    "warmup.epochs=4",
    "eval.tasks=16",
    "eval.every=0",
    "checkpoint.every=1",
)
STEPS = {False: 8, True: 3}


def train_kept(folder: Path, env: str, algo: str, steps: int) -> None:
    """Train and keep a checkpoint of every step."""
    settings = [text for setting in (*SETTINGS, f"checkpoint.keep={steps + 1}") for text in ("-s", setting)]
    train(folder, ["--env", env, "--algo", algo, "--steps", str(steps), "--seed", "11", *settings])


def reproduce(folder: Path, steps: int) -> dict[str, int]:
    """Return how much of a run came out again."""
    chosen = [trajectory for _, trajectory in iterate(str(folder))]
    reports = asyncio.run(replay_all(chosen, "", ()))
    again = [retrain(folder, step) for step in range(1, steps + 1)]
    for report in reports:
        if report.divergence is not None:
            say(f"{folder.name}: {report.trajectory_id} {report.divergence}")
    return {
        "rollouts": len(reports),
        "hash_equal": sum(report.identical for report in reports),
        "steps": len(again),
        "train_step_equal": sum(found.equal and found.tensors_compared is not None for found in again),
        "updates": sum(int(found.metrics.get("updates", 0)) for found in again),
    }


def run(pairs: Sequence[tuple[str, str]], steps: int) -> dict[str, dict[str, int]]:
    found = {}
    with tempfile.TemporaryDirectory() as scratch:
        for env, algo in pairs:
            folder = Path(scratch) / f"{env}-{algo}"
            train_kept(folder, env, algo, steps)
            found[folder.name] = reproduce(folder, steps)
    return found


def main() -> None:
    parser = parser_of(__doc__, quick="one pair, three steps", write="reproduce.md")
    given = parser.parse_args()
    found = run(PAIRS[:1] if given.quick else PAIRS, STEPS[given.quick])
    names = list(next(iter(found.values())))
    if given.write:
        table = markdown_table(("run", *names), [(run, *figures.values()) for run, figures in found.items()])
        write_results("reproduce.md", "Runs computed again", "python -m benchmarks.reproduce --write", table)
    finish({name: sum(figures[name] for figures in found.values()) for name in names})


if __name__ == "__main__":
    main()
