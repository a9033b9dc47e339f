"""A run that is killed and resumed with other numbers of processes: nothing is lost, and nothing learned twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from ale.training.runs import CONFIG
from benchmarks.runs import train_rows
from trainer.scheduler.journal import JOURNAL, audit, entries

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

STEPS, GROUPS, SIZE = 6, 2, 3
SETTINGS = {
    "warmup.trajectories": 4,
    "warmup.epochs": 1,
    "rollout.groups_per_step": GROUPS,
    "rollout.group_size": SIZE,
    "eval.tasks": 2,
    "eval.every": 0,
    "checkpoint.every": 1,
}
FEW = {"rollout.workers": 1, "rollout.engines": 1}
MANY = {"rollout.workers": 2, "rollout.engines": 2, "rollout.concurrency": 3, "optim.microbatch_tokens": 512}
STREAM = {"rollout.mode": "stream", "rollout.staleness": 1, "rollout.batching": "eager"}


def command(run: Path, *words: str, **settings: object) -> list[str]:
    chosen = [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    return [sys.executable, "-m", "ale", "train", "--run", str(run), "--quiet", *words, *chosen]


def started(run: Path, *words: str, **settings: object) -> subprocess.Popen[bytes]:
    with run.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(
            command(run, *words, **settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        )


@pytest.mark.parametrize("mode", [{}, STREAM], ids=["sync", "stream"])
def test_a_run_goes_on_with_more_workers_and_samplers_and_then_with_fewer(
    mode: dict[str, object], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ("--env", "frozen_lake", "--algo", "ipa", "--seed", "5", "--steps", str(STEPS))
    process = started(run, *words, **SETTINGS, **FEW, **mode)
    for step, numbers in ((2, MANY), (4, FEW)):
        until = time.monotonic() + 240
        while not (run / "checkpoints" / f"step-{step:06d}").exists():
            assert process.poll() is None, run.with_suffix(".log").read_text()
            assert time.monotonic() < until, "the run took no step"
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = started(run, "--resume", **numbers)
    assert process.wait(timeout=240) == 0, run.with_suffix(".log").read_text()
    kept = tomllib.loads((run / CONFIG).read_text())
    assert (kept["rollout"]["workers"], kept["rollout"]["concurrency"]) == (1, 3)
    assert kept["optim"]["microbatch_tokens"] == 512
    assert [row["step"] for row in train_rows(run)] == [*range(1, STEPS + 1)]
    found = audit(entries(run / JOURNAL))
    assert found.consumed == STEPS * GROUPS * SIZE
    assert (found.lost, found.twice, found.open) == ([], [], [])
