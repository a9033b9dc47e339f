"""Two environments in one run with real processes: killed, resumed, computed again from its records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from command_line import ale

from agent_runtime.store import kept_segment, read_segment
from trainer.config import dealt, shares_in

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600), pytest.mark.turn(1)]

MIXTURE = "frozen_lake:2/3,fork_chain:1/3"
STEPS = 4
OPTIONS = [
    *(
        "--env-arg",
        "fork_chain.length=2",
        "--env-arg",
        "fork_chain.width=2",
        "--env-arg",
        "fork_chain.crucial=0",
    ),
    *("-s", "warmup.trajectories=6", "-s", "warmup.epochs=2", "-s", "eval.tasks=4", "-s", "eval.every=0"),
    *("-s", "rollout.groups_per_step=4", "-s", "rollout.group_size=3", "-s", "checkpoint.every=1"),
    *("-s", "curriculum.tasks=pass_rate", "-s", "anchors.scheduler=sequential", "-s", "optim.minibatches=2"),
]


def beginning(run: Path) -> list[str]:
    named = ["--env", MIXTURE, "--seed", "5", "--steps", str(STEPS), "--run", str(run), "--quiet"]
    return ["train", *named, *OPTIONS]


def test_a_killed_mixture_resumes_to_the_same_bytes_and_is_computed_again(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = ale(*beginning(whole), cwd=tmp_path, timeout_s=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "frozen_lake: " in done.stdout
    assert "fork_chain: " in done.stdout
    process = subprocess.Popen(
        [sys.executable, "-m", "ale", *beginning(killed)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    deadline = time.monotonic() + 240
    while not (killed / "checkpoints" / "step-000001").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, "the run ended before it could be killed: give it more steps"
    process.send_signal(signal.SIGKILL)
    process.wait()
    resumed = ale("train", "--resume", "--run", str(killed), "--quiet", cwd=tmp_path, timeout_s=300)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    (ours,), (theirs,) = (sorted((run / "model").glob("*.safetensors")) for run in (whole, killed))
    assert ours.read_bytes() == theirs.read_bytes()
    shares = shares_in(MIXTURE)
    for step in range(1, STEPS + 1):
        batch = list(read_segment(kept_segment(killed, "step", step)))
        groups = Counter({t.group_id: t.env.partition("@")[0] for t in batch}.values())
        assert groups == dealt(shares, 4 * (step - 1), 4)
    summary = json.loads((killed / "summary.json").read_text())
    assert summary["env"] == MIXTURE
    assert summary["envs_final"].keys() == {"frozen_lake", "fork_chain"}

    again = ale("replay", "train", str(killed), cwd=tmp_path, timeout_s=200)
    assert again.returncode == 0, again.stdout + again.stderr
    listed = ale("replay", "list", str(killed), "--env", "fork_chain", "--file", "step-*", cwd=tmp_path)
    assert "15 that fit" in listed.stdout, listed.stdout
    told = ale("replay", "list", str(killed), "--by", "env", cwd=tmp_path)
    assert "frozen_lake@" in told.stdout
    assert "fork_chain@" in told.stdout
    measured = ale("eval", str(killed), "--env", "fork_chain", "--tasks", "4", cwd=tmp_path, timeout_s=200)
    assert measured.returncode == 0, measured.stdout + measured.stderr
