"""How quickly a large run answers `ale replay`, and what records cost: time, bytes and memory.

`python -m benchmarks.replay [--quick] [--write] [--cli-run RUN]`. A run of 10,240 rollouts is written to a scratch folder
(copies of a kept rollout of three turns, 80 files). Times are medians of processes started one after the other,
alternating. The last line is one JSON object:

- `list_10k_s`: `ale replay list` of all, wall time of the process less that of `ale --version` (goal: at most 1);
- `list_10k_first_s`: the same before any row is kept, which reads every record;
- `open_ms`: process start to the first line of `ale replay show RUN ID`, above `ale --version` (goal: at most 300);
- `find_id_ms`: finding the last rollout by its id inside one process (goal: at most 50);
- `schema_1_over_2`: bytes of the training steps of a frozen_lake run as schema 1 would have them, over those of its files
  (goal: at least 5);
- `write_share`: share of such a step's time that writing its rollouts takes, median (goal: at most .03);
- `bytes_per_token`: of all tokens in the rollouts of `--cli-run`, a run with a CLI agent; null without (goal: at most 12);
- `rss_mb_over_small`: peak memory of `ale replay list` and `show` over a run of 2 GB, less that over one of 20 MB (goal: at
  most 50).

`--quick` repeats five times instead of fifteen. `--write` writes docs/results/replay.md.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import msgspec
import numpy as np

from agent_runtime.frames import FRAME_HEADER_BYTES
from agent_runtime.store import encode, read_segment, segment_path, trajectory_files, write_segment
from ale.replay.places import segments
from ale.replay.records import find
from ale.replay.rows import INDEX
from benchmarks.reproduce import train_kept
from benchmarks.runs import train_rows
from benchmarks.scaffold import figures_page, finish, parser_of, seconds_of, write_results

KEPT = Path(__file__).parents[1] / "tests" / "unit" / "kept" / "every_field.traj"
FILES, EACH = 80, 128
LAST = f"{FILES:06d}-{EACH - 1:04d}"
GOALS = {
    "list_10k_s": "≤ 1",
    "open_ms": "≤ 300",
    "find_id_ms": "≤ 50",
    "schema_1_over_2": "≥ 5",
    "write_share": "≤ .03",
    "bytes_per_token": "≤ 12",
    "rss_mb_over_small": "≤ 50",
}
MEGABYTE = 1_000_000
STEPS = 5
"""Of the run on frozen_lake."""


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
    command = [sys.executable, "-m", "ale", *words]
    return seconds_of(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


def measure(folder: Path, repeats: int) -> dict[str, float]:
    run = str(folder)
    version, listed, opened, found = [], [], [], []
    first = whole_s("replay", "list", run)
    for _ in range(repeats):
        version.append(whole_s("--version"))
        listed.append(whole_s("replay", "list", run))
        opened.append(first_line_s("replay", "show", run, LAST))
        found.append(seconds_of(lambda: find(run, LAST)))
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


def schema_1(encoded: bytes) -> bytes:
    """Return a record without the fields that schema 2 added."""
    fields = msgspec.msgpack.decode(encoded)
    return msgspec.msgpack.encode(
        {name: fields[name] for name in fields.keys() - {"hosting", "grader_output"}}
    )


def measure_steps(folder: Path) -> dict[str, float]:
    """Train on frozen_lake; return what its steps' records are in bytes and cost in time."""
    train_kept(folder, "frozen_lake", "ipa", STEPS)
    took = {row["step"]: row["rollout_s"] + row["learn_s"] for row in train_rows(folder)}
    before = after = 0
    shares = []
    for step in range(1, STEPS + 1):
        rollouts = list(read_segment(segment_path(folder, "step", step)))
        after += segment_path(folder, "step", step).stat().st_size
        encoded = list(map(encode, rollouts))
        before += sum(FRAME_HEADER_BYTES + len(schema_1(data)) for data in encoded)
        shares.append(seconds_of(lambda: write_segment(folder / "again.rollouts", encoded)) / took[step])  # noqa: B023
    return {
        "schema_1_over_2": round(before / after, 2),
        "write_share": round(statistics.median(shares), 4),
    }


def bytes_per_token(run: str) -> float:
    """Return the bytes of a run's trajectory files over the tokens in them, read and sampled."""
    files = segments(run)
    turns = (turn for path in files for rollout in read_segment(path) for turn in rollout.turns)
    tokens = sum(len(turn.context_ids) + len(turn.completion_ids) for turn in turns)
    return round(sum(path.stat().st_size for path in files) / tokens, 2)


def write_bulk(folder: Path, megabytes: int) -> None:
    """Write a run of as many rollouts of a megabyte that does not compress, 20 in a file."""
    plain, rng = next(iter(read_segment(KEPT))), np.random.default_rng(0)
    for number in range(0, megabytes, 20):
        made = []
        for each in range(number, number + 20):
            logprobs = -rng.random(MEGABYTE // 4, dtype=np.float32)
            turn = replace(
                plain.turns[0], completion_ids=np.zeros(len(logprobs), np.int32), logprobs=logprobs
            )
            made.append(replace(plain, id=f"r{each}", turns=(turn, *plain.turns[1:])))
        write_segment(segment_path(folder, "step", number // 20 + 1), made)


def peak_mb(*words: str) -> float:
    """Return the peak memory of one `ale` process, in megabytes."""
    process = subprocess.Popen([sys.executable, "-m", "ale", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss / 1000


def measure_memory(folder: Path) -> float:
    peaks = {}
    for megabytes in (20, 2000):
        run = folder / str(megabytes)
        write_bulk(run, megabytes)
        size = sum(path.stat().st_size for path in trajectory_files(run / "trajectories"))
        assert size > megabytes * MEGABYTE * 0.8, size
        peaks[megabytes] = max(
            peak_mb("replay", "list", str(run)), peak_mb("replay", "show", str(run), f"r{megabytes - 1}")
        )
    return round(peaks[2000] - peaks[20], 1)


def main() -> None:
    parser = parser_of(__doc__, quick="fewer repeats", write="replay.md")
    parser.add_argument("--cli-run", default="")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        write_run(Path(scratch))
        result: dict[str, float | None] = {**measure(Path(scratch), 5 if given.quick else 15)}
    with tempfile.TemporaryDirectory() as scratch:
        result |= measure_steps(Path(scratch) / "run")
        result["bytes_per_token"] = bytes_per_token(given.cli_run) if given.cli_run else None
        result["rss_mb_over_small"] = measure_memory(Path(scratch))
    if given.write:
        note = (
            "`benchmarks/replay.py` says what each figure is. `bytes_per_token`: six rollouts of mini-swe-agent on `swe` "
            "and two of an evaluation, by the engine `tiny`, whose tokens are bytes."
        )
        body = f"{figures_page(result, GOALS)}\n\n{note}"
        write_results("replay.md", "Asking a large run", "python -m benchmarks.replay --write", body)
    finish(result)


if __name__ == "__main__":
    main()
