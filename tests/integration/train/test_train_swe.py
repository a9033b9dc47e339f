"""Training in real sandboxes: the swe environment with its recipe, with anchors and a policy that points into code."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from ray_cluster import JOINING

from agent_runtime.store import read_segment
from rock_env.backends.process.backend import why_not_fenced

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


def ale(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ale", *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **JOINING},
        check=False,
        timeout=280,
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, cluster: str) -> Path:
    folder = tmp_path_factory.mktemp("swe")
    words = ("train", "--env", "swe", "--algo", "ipa", "--model", "tiny", "--steps", "2")
    done = ale(*words, "--ray-address", cluster, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "swe-ipa-seed0"


def test_two_steps_run_end_to_end(trained: Path) -> None:
    summary = json.loads((trained / "summary.json").read_text())
    assert (summary["env"], summary["algo"], summary["steps"]) == ("swe", "ipa", 2)
    assert 0 <= summary["success_warmup"] <= 1
    assert 0 <= summary["success_final"] <= 1
    assert summary["optimum"] == 1.0
    experts = list(read_segment(trained / "trajectories" / "expert.rollouts"))
    assert [expert.passed for expert in experts] == [True, True]
    assert all(expert.task_id.startswith("train/") for expert in experts)


def test_rollouts_act_in_the_sandbox_and_are_graded(trained: Path) -> None:
    rollouts = [
        rollout
        for step in (1, 2)
        for rollout in read_segment(trained / "trajectories" / f"step-{step:06d}.rollouts")
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
    if why := asyncio.run(why_not_fenced()):
        pytest.skip(f"only isolated sandboxes can be replayed: {why}")
    done = ale("replay", "run", str(trained / "trajectories" / "expert.rollouts"), "--all", cwd=trained)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 trajectories came out as recorded" in done.stdout


SMALL = (
    *("-s", "rollout.groups_per_step=2", "-s", "warmup.trajectories=4", "-s", "warmup.epochs=3"),
    *("-s", "eval.tasks=4", "-s", "eval.apart_tasks=3", "--env-arg", "max_turns=10"),
)


def test_the_coder_learns_from_what_it_did_in_sandboxes(tmp_path: Path, cluster: str) -> None:
    # With a Ray of its own: on another's cluster the run does not tell what its processes used.
    done = ale("train", "--env", "swe", "--algo", "ipa", "--steps", "1", *SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "swe-ipa-seed0"
    summary = json.loads((run / "summary.json").read_text())
    assert list(summary["apart_final"]) == ["held_out_family"], "unseen bug families are reported apart"
    assert f"held_out_family: {summary['apart_warmup']['held_out_family']:.3f} [" in done.stdout
    measured = [
        rollout.task_id.rpartition("/")[0]
        for rollout in read_segment(run / "trajectories" / "eval-000001.rollouts")
    ]
    assert measured == ["held_out"] * 4 + ["held_out_family"] * 3
    assert 0 < summary["time_shares"]["policy"] < 1
    assert 0 < summary["time_shares"]["sandboxes"] < 1
    rollouts = list(read_segment(run / "trajectories" / "step-000001.rollouts"))
    assert [rollout.failure for rollout in rollouts] == [None] * 8
    assert all(rollout.actions for rollout in rollouts)
    tools = {action.split()[0] for rollout in rollouts for action in rollout.actions if action.strip()}
    assert "run_tests" in tools, "imitation taught it to begin like the expert"
    done = ale("eval", "swe-ipa-seed0", "--tasks", "2", "--ray-address", cluster, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
