"""What carries the gain? The same expert data, tasks and budget for IPA and GRPO with and without resets, and BC.

    python -m benchmarks.ablation [--quick] [--seeds 5] [--steps N] [--slippery] [--only BC] [--write]

For one seed every method starts from the same experts, the same initial weights and the same warm-up. Prints a table
with every seed and, as its last line, one JSON object: method -> list of final held-out success by seed.
"""

from __future__ import annotations

import statistics
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.runs import run_training
from benchmarks.scaffold import finish, markdown_table, parser_of, write_results

WITHOUT = ["-s", "anchors.scheduler=none"]
WITH = ["-s", "anchors.scheduler=parallel"]
METHODS = {
    "IPA + resets": ["--algo", "ipa", *WITH],
    "IPA": ["--algo", "ipa", *WITHOUT],
    "GRPO + resets": ["--algo", "grpo", *WITH],
    "GRPO": ["--algo", "grpo", *WITHOUT],
    "BC": ["--algo", "bc", *WITHOUT],
}


def main() -> None:
    parser = parser_of(__doc__, quick="one seed, two methods, few steps", write="ablation[-slippery].md")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--slippery", action="store_true")
    parser.add_argument("--only", action="append", choices=sorted(METHODS), help="these methods; repeatable")
    parser.add_argument(
        "--jobs", type=int, default=1, help="runs at once; quality does not depend on it, time does"
    )
    options = parser.parse_args()
    methods = {name: METHODS[name] for name in options.only or METHODS}
    if options.quick:
        options.seeds, options.steps = 1, 3
        methods = {name: METHODS[name] for name in ("IPA", "BC")}
    common = ["--env", "frozen_lake", "--steps", str(options.steps), "-s", "eval.every=0"]
    if options.slippery:
        common += ["--env-arg", "slippery=true"]
    jobs = [(name, seed) for seed in range(options.seeds) for name in methods]

    def one(job: tuple[str, int]) -> dict[str, Any]:
        name, seed = job
        summary = run_training([*common, "--seed", str(seed), *methods[name]])
        print(
            f"{name} seed {seed}: {summary['success_warmup']:.3f} -> {summary['success_final']:.3f}",
            flush=True,
        )
        return summary

    with ThreadPoolExecutor(options.jobs) as pool:
        results = dict(zip(jobs, pool.map(one, jobs), strict=True))
    final = {name: [results[name, s]["success_final"] for s in range(options.seeds)] for name in methods}
    warm = [results[next(iter(methods)), s]["success_warmup"] for s in range(options.seeds)]
    rows: list[list[object]] = [["warm-up", *warm, statistics.mean(warm), "", ""]]
    for name, values in final.items():
        steps = statistics.mean(results[name, s]["env_steps"] for s in range(options.seeds))
        rows.append([name, *values, statistics.mean(values), min(values), round(steps)])
    text = markdown_table(
        ["method", *(f"seed {s}" for s in range(options.seeds)), "mean", "worst", "env steps"], rows
    )
    print(text, flush=True)
    if options.write:
        suffix = "-slippery" if options.slippery else ""
        flags = " --slippery" if options.slippery else ""
        flags += "".join(f' --only "{name}"' for name in options.only or ())
        write_results(
            f"ablation{suffix}.md",
            f"Ablation on frozen_lake{' (slippery)' if options.slippery else ''}",
            f"python -m benchmarks.ablation --seeds {options.seeds} --steps {options.steps}{flags} --write",
            f"Held-out success after {options.steps} steps, every seed; the optimum is "
            f"{statistics.mean(r['optimum'] for r in results.values()):.3f}.\n\n{text}",
        )
    finish({"warmup": warm, **final})


if __name__ == "__main__":
    main()
