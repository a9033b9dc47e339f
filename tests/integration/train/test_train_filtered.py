"""Training in an environment that breaks on purpose: batches stay full, tokens add up, and `kill -9` changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from agent_runtime.store import read_segment, segment_path
from agent_runtime.types import Trajectory

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

FLAKY = Path(__file__).parents[2] / "contract" / "flaky_lake.py"
STEPS = 3
BATCH = 24
OPTIONS = {
    "env_args.size": 2,
    "env_args.slippery": "true",
    "env_args.max_turns": 6,
    "agent.window_turns": 1,
    "agent.system": "false",
    "sampling.max_tokens": 2,
    "warmup.trajectories": 24,
    "warmup.epochs": 8,
    "warmup.lr": 2e-3,
    "optim.lr": 1e-3,
    "rollout.groups_per_step": 6,
    "rollout.group_size": 4,
    "rollout.concurrency": 8,
    "eval.tasks": 4,
    "eval.every": 0,
    "checkpoint.every": 1,
    "filter.dynamic_extra": 0.5,
    "curriculum.tasks": "pass_rate",
    "curriculum.positive_only": 0.4,
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install the environment as any package would, and return the process environment that finds it."""
    site = tmp_path_factory.mktemp("site")
    shutil.copy(FLAKY, site)
    about = site / "flaky_lake-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flaky-lake\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[ale.envs]\nflaky_lake = flaky_lake:ENV\n")
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}


def command(run: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "ale", "train", "--run", str(run), "--quiet", *words]


def beginning(run: Path) -> list[str]:
    settings = [word for name, value in OPTIONS.items() for word in ("-s", f"{name}={value}")]
    named = ["--env", "flaky_lake", "--algo", "dapo", "--seed", "5", "--steps", str(STEPS)]
    return command(run, *named, *settings)


def finished(words: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def whole(installed: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "whole"
    finished(beginning(run), installed)
    return run


def steps_of(run: Path) -> list[dict[str, float]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["kind"] == "train"]


def stored(run: Path, kind: str, step: int) -> list[Trajectory]:
    path = segment_path(run, kind, step)
    return list(read_segment(path)) if path.exists() else []


def test_batches_stay_full_although_every_fourth_episode_breaks(whole: Path) -> None:
    resampled = 0
    for record in steps_of(whole):
        step = int(record["step"])
        batch, aside = stored(whole, "step", step), stored(whole, "set_aside", step)
        assert len(batch) == BATCH
        assert len(batch) + len(aside) == record["filter/played"]
        assert sum(t.failure is not None for t in batch) == record["filter/placeholders"] < BATCH / 4
        broken = {t.id: t for t in aside if t.failure is not None}
        for t in (t for t in batch if "-r" in t.id):
            name, _, attempt = t.id.rpartition("-r")
            before = broken[name if attempt == "1" else f"{name}-r{int(attempt) - 1}"]
            assert (before.group_id, before.task_id) == (t.group_id, t.task_id)
            assert before.start.env_seed != t.start.env_seed
            resampled += 1
        assert len({t.group_id for t in batch}) == BATCH / 4
        assert record["filter/extra_groups"] <= 3
    assert resampled > 0
    assert any(record["updates"] for record in steps_of(whole)), "no group varied: nothing here was learned"


def test_tokens_of_what_was_set_aside_are_dropped_by_reason_and_add_up(whole: Path) -> None:
    total = 0
    for record in steps_of(whole):
        fates = ("tokens/trained", "tokens/imitated", "tokens/masked/", "tokens/dropped/")
        assert sum(v for n, v in record.items() if n.startswith(fates)) == record["tokens/total"]
        played = [t for kind in ("step", "set_aside") for t in stored(whole, kind, int(record["step"]))]
        broken = [t for t in played if t.failure is not None]
        dropped = sum(v for n, v in record.items() if n.startswith("tokens/dropped/failed/"))
        assert dropped == sum(t.sampled_tokens + t.lost_tokens for t in broken)
        total += sum(t.sampled_tokens + t.lost_tokens for t in played)
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["tokens"] == total == summary["ledger"]["total"] - summary["ledger"]["experts"]


@pytest.mark.turn(1)
def test_kill_and_resume_equals_the_uninterrupted_run(
    whole: Path, installed: dict[str, str], tmp_path: Path
) -> None:
    run = tmp_path / "killed"
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(beginning(run), env=installed, **silent)
    deadline = time.monotonic() + 400
    while not (run / "checkpoints" / "step-000001").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, "the run ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()
    finished(command(run, "--resume"), installed)
    for kind in ("step", "set_aside"):
        for step in range(1, STEPS + 1):
            one, two = stored(whole, kind, step), stored(run, kind, step)
            assert [(t.id, t.task_id, t.actions) for t in one] == [(t.id, t.task_id, t.actions) for t in two]
    (left,), (right,) = (list((each / "model").glob("*.safetensors")) for each in (whole, run))
    one, two = load_file(left), load_file(right)
    assert {name: a.tobytes() for name, a in one.items()} == {name: a.tobytes() for name, a in two.items()}
