"""The tutorial, followed as printed, once for each of several seeds: what every command takes, what every run learns.

`python -m benchmarks.tutorial [--seeds 5] [--first-seed 100] [--docker]`. The two tables that it prints stand on
docs/tutorial.md. A command that fails, or prints something else than the page shows, ends it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from integration.docs.page_steps import Steps

from ale.training.reading import read_run

PAGE = "tutorial.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--docker", action="store_true", help="also the part that needs Docker")
    options = parser.parse_args()
    took_s, learned = defaultdict(list), defaultdict(list)
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        with tempfile.TemporaryDirectory(prefix="tutorial-") as folder:
            steps = Steps(PAGE, Path(folder), seed=seed)
            steps.follow(without=() if options.docker else {"docker"})
            for text, seconds in steps.took_s:
                took_s[text.partition("\n")[0]].append(seconds)
            for config in sorted(steps.folder.glob("runs/*/config.toml")):
                curve = read_run(config.parent).curve
                learned[config.parent.name].append((curve[0].success, curve[-1].success))
        print(f"seed {seed}: {sum(seconds for _, seconds in steps.took_s):.0f} s", flush=True)
    print("\n| command | seconds |\n|---|---|")
    for command, seconds in took_s.items():
        print(f"| `{command}` | {fmean(seconds):.0f} ({min(seconds):.0f} – {max(seconds):.0f}) |")
    print("\n| run | success by seed | rise, least |\n|---|---|---|")
    for run, pairs in learned.items():
        shown = ", ".join(f"{before:.2f} → {after:.2f}" for before, after in pairs)
        print(f"| `{run}` | {shown} | {min(after - before for before, after in pairs):.2f} |")


if __name__ == "__main__":
    main()
