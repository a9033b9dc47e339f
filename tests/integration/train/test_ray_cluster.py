"""`--ray-address`: the actors of a run work in a folder of the cluster's, not in the one that the run was started from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ray_cluster import JOINING, ray_cluster

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

SETTINGS = {
    "engine_options.layers": 1,
    "warmup.trajectories": 0,
    "anchors.inject": 0,
    "eval.tasks": 4,
    "eval.every": 0,
    "rollout.groups_per_step": 2,
    "rollout.group_size": 2,
    "rollout.workers": 1,
    "rollout.engines": 1,
    "reward.routes": '[{worker="rule", options={check="final_answer"}}]',
}


def test_a_run_named_from_here_is_written_here(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with ray_cluster(there) as address:
        settings = [word for name, value in SETTINGS.items() for word in ("-s", f"{name}={value}")]
        began = ["--env", "math", "--algo", "reinforce", "-s", "model=tiny", "--run", "first", "--steps", "1"]
        for chosen in (began, ["--from", "first", "--run", "second", "--steps", "0"]):
            done = subprocess.run(
                [sys.executable, "-m", "ale", "train", *chosen, *settings, "-q", "--ray-address", address],
                cwd=here,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env={**os.environ, **JOINING},
                check=False,
                timeout=240,
            )
            assert done.returncode == 0, done.stdout + done.stderr
    run = here / "runs" / "first"
    assert json.loads((run / "summary.json").read_text())["steps"] == 1
    assert (run / "checkpoints" / "step-000001" / "train.safetensors").is_file()
    assert (run / "model").is_dir()
    assert (run / "rewards" / "answers.jsonl").stat().st_size > 0
    second = json.loads((here / "runs" / "second" / "summary.json").read_text())
    assert second["parent"] == "runs/first"
    assert list(there.iterdir()) == []
