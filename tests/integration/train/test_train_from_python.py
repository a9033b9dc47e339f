"""`ale.train` from a script: an environment, an algorithm and a reward that nobody installed reach every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from threading import Lock

import pytest
from command_line import ale, refused

import ale as package
from agent_runtime.store import read_segment, segment_path
from rock_env import plugins
from rock_env.errors import InvalidArgument
from trainer.errors import ConfigError

OWN = Path(__file__).parents[2] / "tasks" / "own"


def script(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, OWN / "train_own.py", *words],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@pytest.mark.turn(0)
@pytest.mark.timeout(300)
def test_a_script_trains_with_its_own_objects(tmp_path: Path) -> None:
    script("mine", cwd=tmp_path)
    run = tmp_path / "runs" / "mine"
    settings = json.loads((run / "summary.json").read_text())
    assert (settings["env"], settings["algo"], settings["steps"]) == ("echo", "mean_baseline", 2)
    assert json.loads((run / "own.json").read_text()) == {
        "algorithm": ["mean_baseline"],
        "env": ["echo"],
        "reward": ["graded"],
    }
    rollouts = list(read_segment(segment_path(run, "step", 1)))
    assert len(rollouts) == 16
    assert {one.reward_source.worker for one in rollouts if one.reward_source} == {"graded"}
    assert {one.reward for one in rollouts} <= {0.0, 0.5, 1.0}
    # The command line has none of them: it says so, and nothing of the run changes.
    for words in (("train", "--resume", "--run", "mine"), ("eval", "mine"), ("train", "--from", "mine")):
        refused(ale(*words, cwd=tmp_path), 73, "begun by a Python script", "'mean_baseline'", "ale.train(")
    assert "nothing is left to do" in script("mine", "--resume", cwd=tmp_path)


def test_names_of_what_is_installed_are_not_taken() -> None:
    grpo = plugins.load("ale.algorithms", "grpo")
    with plugins.given({("ale.algorithms", "grpo"): grpo}):
        assert not plugins.own()  # the installed one itself
    with pytest.raises(InvalidArgument, match="has the name 'grpo', as one that is installed"):
        plugins.give({("ale.algorithms", "grpo"): object()})
    with plugins.given({("ale.algorithms", "mine"): grpo}):
        assert plugins.load("ale.algorithms", "mine") is grpo
        assert "mine" in plugins.names("ale.algorithms")
    assert "mine" not in plugins.names("ale.algorithms")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"algo": object()},
            "algo must be a name, an AlgorithmSpec or an object with credit, loss and needs_prox",
        ),
        ({"reward": 3}, "reward must be a name, a RewardSpec or a function"),
        ({"env": 3}, "env must be a name, a class with reset and step, or an object of type EnvSpec, got 3"),
        ({"resume": True}, "resume=True continues a run: name it"),
        ({"reward": partial(float, Lock())}, "cannot be sent to other processes: TypeError: cannot pickle"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_starts(
    given: dict[str, object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        package.train(**given)
    assert not (tmp_path / "runs").exists()


def test_importing_ale_brings_nothing_heavy() -> None:
    code = "import sys, ale; print(ale.__version__, *{'torch', 'ray', 'numpy', 'grpc', 'pydantic'} & {*sys.modules})"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == [package.__version__]
