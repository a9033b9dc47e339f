"""How quickly a large run answers `ale replay`: listing, finding one rollout, showing it.

`python -m benchmarks.replay [--quick] [--write]`. A run of 10,240 rollouts is written to a scratch folder (copies of a kept
rollout of three turns, 80 files). Times are medians of processes started one after the other, alternating. The last line
is one JSON object:

- `list_10k_s`: `ale replay list` of all, wall time of the process less that of `ale --version` (goal: at most 1);
- `list_10k_first_s`: the same before any row is kept, which reads every record;
- `open_ms`: process start to the first line of `ale replay show RUN ID`, above `ale --version` (goal: at most 300);
- `find_id_ms`: finding the last rollout by its id inside one process (goal: at most 50).

`--quick` repeats five times instead of fifteen. `--write` writes docs/results/replay.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from agent_runtime.store import read_segment, segment_path, write_segment
from ale.replay.records import find
from ale.replay.rows import INDEX
from benchmarks.runs import markdown_table, write_results

KEPT = Path(__file__).parents[1] / "tests" / "unit" / "kept" / "every_field.traj"
PAGE = Path(__file__).parents[1] / "docs" / "results" / "replay.md"
FILES, EACH = 80, 128
LAST = f"{FILES:06d}-{EACH - 1:04d}"
GOALS = {"list_10k_s": "≤ 1", "open_ms": "≤ 300", "find_id_ms": "≤ 50"}


def write_run(folder: Path) -> None:
    plain = next(iter(read_segment(KEPT)))
    for step in range(1, FILES + 1):
        named = [replace(plain, id=f"{step:06d}-{number:04d}", policy_step=step) for number in range(EACH)]
        write_segment(segment_path(folder, "step", step), named)


def first_line_s(*words: str) -> float:
    """Return the seconds from a process's start to its first line."""
    began = perf_counter()
    with subprocess.Popen([sys.executable, "-m", "ale", *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        took = perf_counter() - began
        process.stdout.read()
    return took


def whole_s(*words: str) -> float:
    began = perf_counter()
    subprocess.run([sys.executable, "-m", "ale", *words], check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - began


def timed(act: Callable[[], object]) -> float:
    began = perf_counter()
    act()
    return perf_counter() - began


def measure(folder: Path, repeats: int) -> dict[str, float]:
    run = str(folder)
    version, listed, opened, found = [], [], [], []
    first = whole_s("replay", "list", run)
    for _ in range(repeats):
        version.append(whole_s("--version"))
        listed.append(whole_s("replay", "list", run))
        opened.append(first_line_s("replay", "show", run, LAST))
        found.append(timed(lambda: find(run, LAST)))
    shutil.rmtree(folder / "trajectories" / INDEX)
    base = statistics.median(version)
    return {
        "rollouts": FILES * EACH,
        "list_10k_s": round(statistics.median(listed) - base, 3),
        "list_10k_first_s": round(first - base, 3),
        "open_ms": round(1000 * (statistics.median(opened) - base), 1),
        "find_id_ms": round(1000 * statistics.median(found), 1),
        "version_s": round(base, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the answers of ale replay.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        write_run(Path(scratch))
        result = measure(Path(scratch), 5 if given.quick else 15)
    if given.write:
        rows = [(name, value, GOALS.get(name, "")) for name, value in result.items()]
        table = markdown_table(("figure", "value", "goal"), rows)
        note = "`benchmarks/replay.py` says what each figure is."
        write_results(PAGE, "Asking a large run", "python -m benchmarks.replay --write", f"{table}\n\n{note}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
