"""Training in real sandboxes: the swe environment with its recipe, two steps, nothing else chosen."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent_runtime.store import read_segment
from rock_env.backends.bubblewrap import Bubblewrap

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


def ale(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ale", *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
        timeout=280,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("swe")
    done = ale("train", "--env", "swe", "--algo", "ipa", "--steps", "2", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "swe-ipa-seed0"


def test_two_steps_run_end_to_end(trained: Path) -> None:
    summary = json.loads((trained / "summary.json").read_text())
    assert (summary["env"], summary["algo"], summary["steps"]) == ("swe", "ipa", 2)
    assert 0 <= summary["success_warmup"] <= 1
    assert 0 <= summary["success_final"] <= 1
    assert summary["optimum"] == 1.0
    experts = list(read_segment(trained / "trajectories" / "expert.traj"))
    assert {(expert.task_id, expert.passed) for expert in experts} == {("train/0", True), ("train/1", True)}


def test_rollouts_act_in_the_sandbox_and_are_graded(trained: Path) -> None:
    rollouts = [
        rollout
        for step in (1, 2)
        for rollout in read_segment(trained / "trajectories" / f"step-{step:06d}.traj")
    ]
    assert len(rollouts) == 16
    assert [rollout.failure for rollout in rollouts] == [None] * 16
    ran = [text for rollout in rollouts for text in rollout.observations if text.startswith("[exit code ")]
    assert ran, "an untrained policy's commands are run all the same"
    anchored = [rollout for rollout in rollouts if rollout.start.source_id]
    assert len(anchored) == 8
    assert any(rollout.passed for rollout in anchored), "they start where the expert had only to submit"
    assert {rollout.reward for rollout in rollouts} <= {0.0, 1.0}


def test_what_the_expert_did_in_its_sandbox_happens_again(trained: Path) -> None:
    """Not so what the policy does: its noise may start background processes, which race."""
    found = Bubblewrap.find()
    if why := found if isinstance(found, str) else asyncio.run(found.check()):
        pytest.skip(f"only isolated sandboxes can be replayed: {why}")
    done = ale("replay", "run", str(trained / "trajectories" / "expert.traj"), "--all", cwd=trained)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 trajectories came out as recorded" in done.stdout
