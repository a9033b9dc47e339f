"""Planted bugs, and the commands that show them: the stories of docs/debugging.md.

That of tokenizer drift is in `tests/unit/agent_runtime/test_drift_is_shown.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from agent_runtime.store import read_segment, segment_path
from agent_runtime.types import Trajectory
from ale.replay.tokens import TurnAccount

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600), pytest.mark.turn(2)]

SMALL = {
    "warmup.trajectories": 16,
    "warmup.epochs": 8,
    "rollout.groups_per_step": 4,
    "rollout.group_size": 4,
    "eval.tasks": 2,
    "eval.every": 0,
    "checkpoint.every": 1,
    "checkpoint.keep": 4,
    "optim.minibatches": 1,
    "optim.lr": 1e-2,
}


def ale(site: Path, cwd: Path, *words: str, code: int = 0, **more: str) -> str:
    variables = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "ale", *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, **variables, **more},
        check=False,
        timeout=300,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def trained(site: Path, cwd: Path, *named: str, **settings: object) -> None:
    chosen = [word for name, value in {**SMALL, **settings}.items() for word in ("-s", f"{name}={value}")]
    ale(site, cwd, "train", *named, "--run", str(cwd / "run"), "--seed", "3", "--quiet", *chosen)


def accounts(site: Path, cwd: Path, identity: str) -> list[TurnAccount]:
    return [
        TurnAccount(**each)
        for each in json.loads(ale(site, cwd, "replay", "tokens", str(cwd / "run"), identity, "--json"))
    ]


def rollouts(cwd: Path) -> list[Trajectory]:
    return list(read_segment(segment_path(cwd / "run", "step", 1)))


def test_a_wrong_mask_is_seen_token_by_token(site: Path, tmp_path: Path) -> None:
    trained(
        site, tmp_path, "--env", "frozen_lake", "--algo", "forgetful", "--steps", "1", **{"optim.lr": 1e-3}
    )
    rewards = Counter((each.group_id, each.reward) for each in rollouts(tmp_path))
    groups = Counter(group for group, _ in rewards)
    learned = next(each for each in rollouts(tmp_path) if groups[each.group_id] > 1 and len(each.turns) > 1)
    first, *others = accounts(site, tmp_path, learned.id)
    assert set(first.fates) == {"masked: zero credit"}
    assert {fate for each in others for fate in each.fates} == {"trained"}


def test_a_broken_grader_is_found_by_the_mended_one(site: Path, tmp_path: Path) -> None:
    ale(site, tmp_path, "rollout", "--env", "lazy_grader", "--policy", "random", "-n", "8", "--out", "r")
    told = ale(site, tmp_path, "replay", "score", "r", code=1, GRADER_IS_MENDED="1")
    lost = sum(not each.turn_rewards[-1] for each in read_segment(segment_path(tmp_path / "r", "rollout")))
    assert lost
    assert f"8 of 8 graded; {lost} have another reward" in told


def test_a_hung_tool_is_named_with_its_action(site: Path, tmp_path: Path) -> None:
    ale(site, tmp_path, "rollout", "--env", "slow_tool", "-n", "1", "--out", "r")
    told = json.loads(ale(site, tmp_path, "replay", "stats", "r", "--json"))
    slow = [turn for turn in told["slowest_turns"] if turn["stepped_s"] > 0.4]
    assert slow
    assert {turn["action"] for turn in slow} == {"down"}
    assert "slowest in the environment" in ale(site, tmp_path, "replay", "stats", "r")


@pytest.mark.parametrize("sampler", ["tiny", "packed"])
def test_a_head_that_stays_behind_shows_as_a_gap(site: Path, tmp_path: Path, sampler: str) -> None:
    named = ("--env", "frozen_lake", "--algo", "grpo", "--steps", "1", "-s", "guard.mismatch=0")
    # With a KL term every token has a gradient, whatever its reward.
    trained(site, tmp_path, *named, sampler=f"'{sampler}'", **{"algo_options.kl_weight": 0.01})
    found = accounts(site, tmp_path, rollouts(tmp_path)[0].id)
    gap = max(abs(each.gap) for each in found)
    assert (gap < 1e-4) is (sampler == "tiny"), gap
