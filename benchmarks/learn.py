"""What does reinforcement add? `ale train --env ENV --algo ipa` over seeds, each beside imitation alone.

    python -m benchmarks.learn [--quick] [--env frozen_lake] [--algo ipa] [--seeds 10] [--first-seed 720] [--jobs 1]
                               [--keep FOLDER] [--write]

Each seed trains twice from one warm-up: by IPA, and by imitation (`bc`) of the same experts with as many updates. Seeds
from 720 on chose no recipe. With `--keep` the runs stay in FOLDER, and those that have ended there are taken as they are.
The last line is one JSON object, its lists by seed:

- `success_by_seed`: held-out success after RL;
- `rise_by_seed`: that minus the one after the warm-up;
- `final_share_by_seed`: of an optimal policy's success;
- `over_imitation_by_seed`: held-out success of RL minus that of imitation;
- `over_imitation`: the mean of these, with its 95 % bootstrap interval over seeds (null with fewer than two);
- `mixed_groups`, `entropy`: of the last tenth of RL's steps, the mean of the groups whose outcomes differ and of the
  entropy per token (nats);
- `sampled_by_seed`, `sampled_rise_by_seed`, `sampled_over_imitation_by_seed`, `sampled_over_imitation`: the same of
  success at temperature 1, where the recipe samples its evaluations (`eval.samples`);
- `text_nll_rise`: the most that plain English became less likely after RL (nats per token), where a model speaks it;
- `train_s`: the longest training by RL.

Cases that begin with `smollm2` train SmolLM2-135M-Instruct (`ale model get smollm2`).

`--quick` runs one short seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.claims import PAGES
from benchmarks.runs import run_training
from benchmarks.scaffold import finish, markdown_table, parser_of, write_results
from benchmarks.statistics import mean_interval

Summary = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One environment as its recipe trains it, and what is expected of it."""

    env: str
    arguments: tuple[str, ...]
    imitation_steps: int
    """Steps of imitation that take as many updates as the recipe's RL does."""
    mean: float
    """Of the optimum, over all seeds."""
    worst: float
    """Of the optimum, in any seed."""
    train_s: float
    note: str


SMOLLM2_NOTE = (
    "SmolLM2-135M-Instruct with an adapter (LoRA), on 100 held-out tasks: greedy, and sampled at temperature 1. Imitation\n"
    "goes on with the experts of the warm-up and takes as many updates as reinforcement."
)
HELD_OUT = "Held-out success, greedy, from the true start"
NAMES = {"ipa": "IPA", "grpo": "GRPO"}
SMOLLM2_STEPS = 15
SMOLLM2 = ("--model", "smollm2", "-s", "optim.threads=2", "-s", "eval.every=10", "-s", "eval.samples=2")
CASES = {
    "frozen_lake": Case(
        "frozen_lake",
        (),
        *(520, 0.96, 0.92, 180.0),
        f"{HELD_OUT}, on 300 maps that training never saw (their optimum is 1). The warm-up imitates 16 expert\n"
        "trajectories in 120 updates. Reinforcement and imitation then take 2,080 more updates each.",
    ),
    "slippery": Case(
        "frozen_lake",
        ("--env-arg", "slippery=true"),
        *(10, 0.85, 0.85, 180.0),
        f"{HELD_OUT}, 600 episodes on slippery maps that training never saw; the optimum is that of the best policy\n"
        "within 60 turns. 256 expert trajectories warm the policy up in 192 updates, and 512 of their turns are\n"
        "imitated beside each step of reinforcement.",
    ),
    "fork_chain": Case(
        "fork_chain",
        (),
        *(100, 0.92, 0.85, 300.0),
        f"{HELD_OUT}, on 300 chains that training never saw (their optimum is 1). The warm-up imitates 64 walks in\n"
        "768 updates. Reinforcement and imitation then take 1,600 more updates each.",
    ),
    "smollm2-frozen_lake": Case(
        "frozen_lake",
        SMOLLM2,
        *(SMOLLM2_STEPS, 0.5, 0.4, 1500.0),
        SMOLLM2_NOTE,
    ),
    "smollm2-fork_chain": Case(
        "fork_chain",
        SMOLLM2,
        *(SMOLLM2_STEPS, 0.5, 0.4, 1500.0),
        SMOLLM2_NOTE,
    ),
    "sokoban": Case(
        "sokoban",
        (),
        *(4, 0.70, 0.70, 900.0),
        f"{HELD_OUT}, on 300 rooms that training never saw. The warm-up imitates 2,048 expert trajectories in 3,072\n"
        "updates. Reinforcement then takes 1,920 more updates, imitation 2,048.",
    ),
}


def measure(
    case: Case, seed: int, short: Sequence[str] = (), *, algo: str = "ipa", keep: Path | None = None
) -> tuple[Summary, Summary]:
    """Train one seed by reinforcement and by imitation; return their summaries."""
    beginning = ["--env", case.env, "--seed", str(seed), "-s", "eval.every=0", *case.arguments]

    def run(name: str, *arguments: str) -> Summary:
        kept = keep / f"{case.env}-{name}-{seed}" if keep else None
        return run_training([*beginning, "--algo", name, *arguments, *short], kept=kept)

    learned = run(algo)
    imitated = run("bc", "--steps", str(case.imitation_steps))
    print(
        f"{case.env} seed {seed}: {learned['success_warmup']:.3f} -> {learned['success_final']:.3f} of "
        f"{learned['optimum']:.3f} in {learned['train_s']:.0f} s; imitation alone {imitated['success_final']:.3f}",
        flush=True,
    )
    return learned, imitated


def table(pairs: Sequence[tuple[Summary, Summary]], algo: str) -> str:
    """Return the page's table: a row for each seed; success as greedy, then sampled where the recipe samples."""
    header = ["seed", "warm-up", "imitation alone", NAMES[algo], "optimum", "train_s", "env steps", "tokens"]
    rows = [
        (
            s["seed"],
            said(s["eval_warmup"]),
            said(imitated["eval_final"]),
            said(s["eval_final"]),
            s["optimum"],
            round(s["train_s"]),
            s["env_steps"],
            s["tokens"],
        )
        for s, imitated in pairs
    ]
    return markdown_table(header, rows)


def said(evaluation: Summary) -> str:
    """Return an evaluation's greedy success, with the sampled one where there is one."""
    greedy, sampled = evaluation["success"], evaluation.get("pass@1")
    return f"{greedy:.3f}" if sampled is None else f"{greedy:.3f}, sampled {sampled:.3f}"


def figures(pairs: Sequence[tuple[Summary, Summary]]) -> dict[str, Any]:
    """Return what the last line prints."""
    over = [s["success_final"] - imitated["success_final"] for s, imitated in pairs]
    return {
        "success_by_seed": [round(s["success_final"], 4) for s, _ in pairs],
        "rise_by_seed": [round(s["success_final"] - s["success_warmup"], 4) for s, _ in pairs],
        "final_share_by_seed": [round(s["share_final"], 4) for s, _ in pairs],
        "over_imitation_by_seed": [round(value, 4) for value in over],
        "over_imitation": mean_interval(over).rounded() if len(over) > 1 else None,
        **(sampled_figures(pairs) if all("pass@1" in s["eval_final"] for s, _ in pairs) else {}),
        **{name: [late(s["steps"], name) for s, _ in pairs] for name in ("mixed_groups", "entropy")},
        "train_s": round(max(s["train_s"] for s, _ in pairs), 1),
    }


def sampled_figures(pairs: Sequence[tuple[Summary, Summary]]) -> dict[str, Any]:
    """Return what the last line prints of success at temperature 1, and of plain English."""
    ends = [s["eval_final"]["pass@1"] for s, _ in pairs]
    rises = [s["eval_final"]["pass@1"] - s["eval_warmup"]["pass@1"] for s, _ in pairs]
    over = [s["eval_final"]["pass@1"] - imitated["eval_final"]["pass@1"] for s, imitated in pairs]
    english = [s["eval_final"]["text_nll_rise"] for s, _ in pairs if "text_nll_rise" in s["eval_final"]]
    return {
        "sampled_by_seed": [round(value, 4) for value in ends],
        "sampled_rise_by_seed": [round(value, 4) for value in rises],
        "sampled_over_imitation_by_seed": [round(value, 4) for value in over],
        "sampled_over_imitation": mean_interval(over).rounded() if len(over) > 1 else None,
        "text_nll_rise": round(max(english), 4) if english else None,
    }


def late(steps: Sequence[Summary], name: str) -> float:
    """Return the mean of a metric over the last tenth of the steps."""
    return round(float(mean(step[name] for step in steps[-max(1, len(steps) // 10) :])), 4)


def verdict(case: Case, found: dict[str, Any], algo: str) -> str:
    """Return the sentences below the table."""
    shares, over = found["final_share_by_seed"], found["over_imitation_by_seed"]
    text = f"{NAMES[algo]} ends at {mean(shares):.3f} of the optimum in the mean (goal {case.mean}) and "
    text += f"at {min(shares):.3f} in the worst of {len(shares)} seeds (goal {case.worst});\n"
    text += f"{sum(value > 0 for value in over)} of them end above imitation alone"
    if found["over_imitation"]:
        estimate, low, high = found["over_imitation"]
        text += f", by {estimate:.3f} [{low:.3f}, {high:.3f}] in the mean"
    return f"{text}. The longest training took {found['train_s']} s (goal {case.train_s:.0f} s)."


def main() -> None:
    parser = parser_of(__doc__, quick="one seed, few steps, at most 50 s", write="learn-ENV.md")
    parser.add_argument("--env", choices=sorted(CASES), default="frozen_lake")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=720)
    parser.add_argument("--jobs", type=int, default=1, help="seeds that train at once")
    parser.add_argument("--algo", choices=("ipa", "grpo"), default="ipa", help="reinforcement by")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="of the runs")
    options = parser.parse_args()
    case = CASES[options.env]
    if options.quick:
        pair = measure(case, options.first_seed, ("--steps", "8", "-s", "eval.every=0"), algo=options.algo)
        finish({"env": options.env, **figures([pair]), "quick": True})
        return
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with ThreadPoolExecutor(options.jobs) as pool:
        pairs = list(pool.map(lambda seed: measure(case, seed, algo=options.algo, keep=options.keep), seeds))
    found = figures(pairs)
    body = f"{case.note}\n\n{table(pairs, options.algo)}\n\n{verdict(case, found, options.algo)}"
    print(body, flush=True)
    if options.write:
        write_page(options, case, pairs, body)
    finish({"env": options.env, "algo": options.algo, **found})


def write_page(
    options: argparse.Namespace, case: Case, pairs: Sequence[tuple[Summary, Summary]], body: str
) -> None:
    """Write the page of results and, where evaluations stand between the ends, its picture."""
    name = f"learn-{options.env}" if options.algo == "ipa" else f"learn-{options.env}-{options.algo}"
    command = f"python -m benchmarks.learn --env {options.env} --seeds {options.seeds}"
    command += f" --first-seed {options.first_seed} --jobs {options.jobs} --write"
    command += "" if options.algo == "ipa" else f" --algo {options.algo}"
    if len(pairs[0][0]["curve"]) > 2:
        draw(pairs, case, options.algo, PAGES / f"{name}.svg")
        body += f"\n\n![Held-out success by updates]({name}.svg)"
    write_results(f"{name}.md", f"Learning on {options.env}", command, body)


def draw(pairs: Sequence[tuple[Summary, Summary]], case: Case, algo: str, path: Path) -> None:
    """Draw held-out success over updates: the mean of the seeds, lowest and highest as a band; and of training rollouts."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = path.stem  # the same figures give the same file
    updates = len(pairs[0][0]["steps"])
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for place, (label, scale) in enumerate(
        ((algo, 1.0), ("imitation alone", updates / case.imitation_steps))
    ):
        curves = [pair[place]["curve"] for pair in pairs]
        steps = [record["step"] * scale for record in curves[0]]
        seen = [[record["success"] for record in each] for each in zip(*curves, strict=True)]
        axes.plot(steps, [mean(each) for each in seen], marker="o", label=f"{label}, greedy")
        axes.fill_between(
            steps, [min(each) for each in seen], [max(each) for each in seen], alpha=0.2, linewidth=0
        )
    played = [[step["success"] for step in learned["steps"]] for learned, _ in pairs]
    sampled = [mean(each) for each in zip(*played, strict=True)]
    axes.plot(range(1, updates + 1), sampled, color="0.6", linewidth=1, label=f"{algo}, training rollouts")
    axes.set(
        xlabel="steps of reinforcement, or as many updates of imitation", ylabel="success", ylim=(0, 1.02)
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main()
