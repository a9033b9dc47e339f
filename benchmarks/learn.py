"""Does it learn? `ale train --env ENV --algo ipa` over seeds; frozen_lake deterministic and slippery.

    python -m benchmarks.learn [--quick] [--seeds 5] [--env frozen_lake] [--variant slippery] [--write]

Prints the table of seeds and, as its last line, one JSON object: `rise_by_seed` (held-out success after RL minus after
the imitation warm-up), `final_share_by_seed` (of an optimal policy's success) and `train_s` (longest run), for the
deterministic maps, and the same under `slippery`. `--quick` runs one short seed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.runs import markdown_table, run_training, write_results

VARIANTS: dict[str, dict[str, list[str]]] = {
    "frozen_lake": {"deterministic": [], "slippery": ["--env-arg", "slippery=true"]},
    "sokoban": {"deterministic": []},
}
HELD_OUT = "Held-out success, greedy, from the true start"
NOTES = {
    ("frozen_lake", "deterministic"): (
        f"{HELD_OUT}, on 300 maps that training never saw (their optimum is 1). The imitation\n"
        "warm-up is 16 expert trajectories (120 updates): after it most seeds still answer blindly, and reinforcement\n"
        "learning, with the same 16 trajectories imitated beside it, does the rest."
    ),
    ("frozen_lake", "slippery"): (
        f"{HELD_OUT}, 600 episodes on maps that training never saw; the optimum is that of\n"
        "the best policy within 60 turns. 256 expert trajectories (about 5,900 turns, 1.5 % of all turns) warm the\n"
        "policy up in 192 updates, and 512 of their turns are imitated beside each step of reinforcement learning,\n"
        "so the rise is that of both together."
    ),
    ("sokoban", "deterministic"): (
        f"{HELD_OUT}, on 300 rooms that training never saw. 64 expert trajectories warm the\n"
        "policy up, and 32 of them are imitated beside each step of reinforcement learning."
    ),
}
GOALS = {"frozen_lake": (0.25, 0.85, 180.0), "sokoban": (0.15, 0.0, 600.0)}


def measure(env: str, arguments: list[str], seeds: int) -> list[dict[str, Any]]:
    summaries = []
    for seed in range(seeds):
        summary = run_training(["--env", env, "--algo", "ipa", "--seed", str(seed), *arguments])
        summaries.append(summary)
        print(
            f"{env} {' '.join(arguments)} seed {seed}: {summary['success_warmup']:.3f} -> "
            f"{summary['success_final']:.3f} of {summary['optimum']:.3f} in {summary['train_s']:.0f} s",
            flush=True,
        )
    return summaries


def table(summaries: list[dict[str, Any]]) -> str:
    header = [
        "seed",
        "warm-up",
        "final",
        "rise",
        "optimum",
        "share of optimum",
        "train_s",
        "env steps",
        "tokens",
    ]
    rows = [
        (
            s["seed"],
            s["success_warmup"],
            s["success_final"],
            s["success_final"] - s["success_warmup"],
            s["optimum"],
            s["share_final"],
            round(s["train_s"]),
            s["env_steps"],
            s["tokens"],
        )
        for s in summaries
    ]
    return markdown_table(header, rows)


def figures(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "rise_by_seed": [round(s["success_final"] - s["success_warmup"], 4) for s in summaries],
        "final_share_by_seed": [round(s["share_final"], 4) for s in summaries],
        "train_s": round(max(s["train_s"] for s in summaries), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one seed, few steps, at most 50 s")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--env", choices=sorted(VARIANTS), default="frozen_lake")
    parser.add_argument("--variant", choices=["deterministic", "slippery"], help="only this one")
    parser.add_argument("--write", action="store_true", help="write docs/results/learn-ENV.md")
    options = parser.parse_args()
    variants = VARIANTS[options.env]
    if options.variant:
        variants = {name: words for name, words in variants.items() if name == options.variant}
    if options.quick:
        summaries = measure(options.env, ["--steps", "8", "-s", "eval.every=0"], 1)
        print(json.dumps({**figures(summaries), "quick": True}))
        return
    rise_goal, share_goal, limit_s = GOALS[options.env]
    measured, parts = {}, []
    for name, arguments in variants.items():
        summaries = measure(options.env, arguments, options.seeds)
        measured[name] = figures(summaries)
        good = sum(
            s["success_final"] - s["success_warmup"] >= rise_goal and s["share_final"] >= share_goal
            for s in summaries
        )
        parts.append(
            f"## {name}\n\n{NOTES[options.env, name]}\n\n{table(summaries)}\n\n"
            f"{good} of {len(summaries)} seeds rise by at least {rise_goal}"
            + (f" and end at {share_goal} of the optimum or above" if share_goal else "")
            + f"; longest training {measured[name]['train_s']} s (goal {limit_s:.0f} s)."
        )
        print(parts[-1], flush=True)
    if options.write:
        only = f" --variant {options.variant}" if options.variant else ""
        command = f"python -m benchmarks.learn --env {options.env} --seeds {options.seeds}{only} --write"
        suffix = f"-{options.variant}" if options.variant else ""
        target = Path("docs/results") / f"learn-{options.env}{suffix}.md"
        write_results(target, f"Learning on {options.env}", command, "\n\n".join(parts))
    first = measured.pop(next(iter(measured)))
    print(json.dumps({"env": options.env, **first, **measured}))


if __name__ == "__main__":
    main()
