"""Training in a browser end to end: experts, anchored rollouts, grades and pictures, by the built-in policy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime.artifacts import folder_in
from agent_runtime.store import read_segment

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


def test_three_steps_run_end_to_end(tmp_path: Path) -> None:
    words = (
        "train",
        "--env",
        "browser",
        "--algo",
        "ipa",
        "--model",
        "tiny",
        "--steps",
        "3",
        "--env-arg",
        "pictures=true",
    )
    done = subprocess.run(
        [sys.executable, "-m", "ale", *words],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        timeout=880,
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "browser-ipa-seed0"
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["env"], summary["algo"], summary["steps"]) == ("browser", "ipa", 3)
    experts = list(read_segment(run / "trajectories" / "expert.rollouts"))
    assert experts
    assert all(expert.passed for expert in experts)
    rollouts = [
        rollout
        for step in (1, 2, 3)
        for rollout in read_segment(run / "trajectories" / f"step-{step:06d}.rollouts")
    ]
    assert len(rollouts) == 12
    assert [rollout.failure for rollout in rollouts] == [None] * 12
    assert {rollout.reward for rollout in rollouts} <= {0.0, 1.0}
    assert any(rollout.start.source_id for rollout in rollouts), "some began at an anchor"
    named = {each.sha256 for rollout in (*experts, *rollouts) for each in rollout.artifacts}
    kept = {path.name for path in folder_in(run).iterdir()}
    assert named, "each first observation has a picture"
    assert named <= kept
