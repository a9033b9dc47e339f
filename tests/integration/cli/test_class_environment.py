"""A class without an `EnvSpec` is an environment on the command line and in `ale.train`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ale, refused

from agent_runtime.store import read_segment, segment_path

GAME = Path(__file__).parents[3] / "examples" / "07_word_game" / "words.py"
SMALL = (
    *("-s", "rollout.groups_per_step=4", "-s", "rollout.group_size=4", "-s", "rollout.workers=1"),
    *(
        "-s",
        "rollout.engines=1",
        "-s",
        "eval.tasks=8",
        "-s",
        "warmup.trajectories=4",
        "-s",
        "warmup.epochs=1",
    ),
)
SCRIPT = """
import ale

class Echo:
    '''Say the letter that you see.'''

    def reset(self, seed=None):
        self.letter = "abc"[seed % 3]
        return self.letter, {}

    def step(self, action):
        return "", float(action == self.letter), True, False, {}

    def expert(self, observation):
        return observation

ale.train(
    env=Echo, run="echo", steps=1, agent={"max_turns": 2}, sampling={"max_tokens": 2},
    rollout={"groups_per_step": 4, "group_size": 4, "workers": 1, "engines": 1},
    warmup={"trajectories": 4, "epochs": 1}, eval={"tasks": 8, "every": 0},
)
"""


@pytest.mark.turn(1)
@pytest.mark.ray
def test_a_class_is_trained_on_evaluated_and_replayed_by_its_name(tmp_path: Path) -> None:
    shutil.copy(GAME, tmp_path)
    words = (
        "train",
        "--env",
        "words:WordGame",
        "--env-arg",
        "hidden=1",
        "--steps",
        "2",
        "--run",
        "w",
        *SMALL,
    )
    done = ale(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    run = tmp_path / "runs" / "w"
    assert json.loads((run / "summary.json").read_text())["steps"] == 2
    rollouts = list(read_segment(segment_path(run, "step", 2)))
    assert {one.env for one in rollouts} == {"words:WordGame@1"}
    assert all(one.first_observation.count("_") == 1 and one.has_reward for one in rollouts)
    assert "words:WordGame (held_out)" in ale("eval", "w", "--tasks", "4", cwd=tmp_path).stdout
    assert "came out as recorded" in ale("replay", "run", "w", cwd=tmp_path).stdout
    assert "nothing is left to do" in ale("train", "--resume", "--run", "w", cwd=tmp_path).stderr
    (tmp_path / "words.py").unlink()
    refused(ale("eval", "w", cwd=tmp_path), 2, "words:WordGame")


@pytest.mark.turn(1)
@pytest.mark.ray
def test_a_class_that_stands_in_a_script_is_trained_on(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "mine.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stderr
    rollouts = list(read_segment(segment_path(tmp_path / "runs" / "echo", "step", 1)))
    assert {one.env for one in rollouts} == {"echo@1"}


def test_what_is_no_environment_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("class Half:\n    def reset(self): ...\nNUMBER = 3\n")
    (tmp_path / "torn.py").write_text("1 / 0\n")

    def dry(env: str) -> subprocess.CompletedProcess[str]:
        return ale("train", "--env", env, "--dry-run", cwd=tmp_path)

    refused(dry("mine:Half"), 2, "got no step")
    refused(dry("mine:NUMBER"), 2, "is an object of type int, expected a class with reset and step")
    refused(dry("torn:Any"), 2, "ZeroDivisionError")
    refused(dry("mine:Absent"), 2, "Absent")
    refused(dry("absent.py:Any"), 2, "absent")
    refused(dry("frozen_lak:Any"), 2, "frozen_lak")
