"""`ale debug` as a user runs it: it stops at a turn, and where a plugin's code raises."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from command_line import ale, refused

BROKEN = """
from dataclasses import replace

from sandboxes import frozen_lake
from sandboxes.frozen_lake.env import FrozenLake


class Broken(FrozenLake):
    def evaluate(self):
        cells = {"goal": 1}
        return cells["gaol"]


ENV = replace(frozen_lake.ENV, name="broken_lake", factory=Broken)
"""


@pytest.fixture
def broken(tmp_path: Path) -> dict[str, str]:
    """Return the variables with which an environment is installed whose grader raises."""
    about = tmp_path / "packages" / "broken_lake-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-lake\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[ale.envs]\nbroken_lake = broken_lake:ENV\n")
    (tmp_path / "packages" / "broken_lake.py").write_text(BROKEN)
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path / "packages"), *sys.path])}


def test_it_stops_where_the_environment_takes_a_turn(tmp_path: Path) -> None:
    done = ale(
        "debug", "frozen_lake/train/0", "--turn", "1", cwd=tmp_path, typed="p action\nup\np 6 * 7\nc\n"
    )
    assert done.returncode == 0, done.stderr
    assert "frozen_lake/env.py" in done.stdout
    assert "'right'" in done.stdout
    assert "\n(Pdb) 42\n" in done.stdout
    assert "terminated after 6 turns: passed, reward 1" in done.stdout


def test_it_stops_where_a_grader_raises(tmp_path: Path, broken: dict[str, str]) -> None:
    done = ale("debug", "broken_lake/train/0", cwd=tmp_path, typed="p cells\nq\n", **broken)
    assert "KeyError: 'gaol'" in done.stdout
    assert "{'goal': 1}" in done.stdout
    assert "failed at turn 6 (infra)" in done.stdout
    assert done.returncode == 75, done.stderr
    assert done.stderr.splitlines()[-1].startswith("ale: the rollout failed with infra")


def test_rules_of_a_sandbox_are_stopped_in_as_well(tmp_path: Path) -> None:
    done = ale("debug", "terminal/train/0", "--turn", "0", cwd=tmp_path, typed="p type(sandbox)\nc\n")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Box" in done.stdout.partition("(Pdb)")[2].splitlines()[0]
    assert "passed, reward 1" in done.stdout


def test_a_recorded_rollout_is_played_again(tmp_path: Path) -> None:
    done = ale("rollout", "--env", "frozen_lake", "--episodes", "2", "--out", "r", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = ale("debug", "r", "--id", "oracle-00001", "--turn", "0", cwd=tmp_path, typed="c\n")
    assert done.returncode == 0, done.stderr
    assert "task train/1" in done.stdout
    refused(ale("debug", "r", "--id", "oracle-9", cwd=tmp_path), 65, "no trajectory 'oracle-9'")


def test_leaving_the_debugger_ends_the_command(tmp_path: Path) -> None:
    done = ale("debug", "frozen_lake/train/0", "--turn", "1", cwd=tmp_path, typed="q\n")
    refused(done, 75, "the debugger was left before the rollout's end")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nonsense",), 2, "expected ENV/SPLIT/INDEX"),
        (("frozen_lake/train/x",), 2, "train/x"),
        (("frozen_lake/train/999999999",), 2, "no task"),
        (("no_such_env/train/0",), 2, "no_such_env"),
        (("frozen_lake/train/0", "--env-arg", "size=-1"), 2, "size"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, words: tuple[str, ...], code: int, said: str) -> None:
    refused(ale("debug", *words, cwd=tmp_path), code, said)


GAME = '''
class Game:
    """Say yes."""

    def reset(self, seed=None):
        self.seed = seed
        return f"round {seed}", {}

    def step(self, action):
        print("it was asked", action)
        if self.seed == 1:
            raise KeyError("missing")
        return "done", float(action == "yes"), True, False, {}

    def expert(self, observation):
        return "yes"
'''


def test_a_class_of_the_user_is_debugged(tmp_path: Path) -> None:
    (tmp_path / "game.py").write_text(GAME)
    done = ale("debug", "game:Game/train/0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "it was asked yes" in done.stdout
    assert "terminated after 1 turn" in done.stdout
    done = ale("debug", "game.py:Game/train/1", cwd=tmp_path, typed="p self.seed\nq\n")
    assert "KeyError: 'missing'" in done.stdout
    assert "(Pdb) 1\n" in done.stdout
    assert ale("rollout", "--env", "game:Game", "-n", "1", "--out", "kept", cwd=tmp_path).returncode == 0
    done = ale("debug", "kept", "--id", "oracle-00000", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "it was asked yes" in done.stdout
