"""Every example runs as its first lines say, in a folder of its own."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rock_env.tasksets.detect import read_tasks

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(*words: str, cwd: Path, path: Path | None = None) -> str:
    search = [str(path), *sys.path] if path else sys.path
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(search)},
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_has_a_test() -> None:
    tests = {name.removeprefix("test_")[:2] for name in globals() if name.startswith("test_0")}
    assert tests == {path.name[:2] for path in EXAMPLES.iterdir() if path.name[:2].isdigit()}


def test_01_make_and_step(tmp_path: Path) -> None:
    assert "down: reward" in run(str(EXAMPLES / "01_make_and_step.py"), cwd=tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("gem") is None, reason="gem-llm needs Python < 3.12")
def test_02_gem(tmp_path: Path) -> None:
    assert "over after" in run(str(EXAMPLES / "02_gem.py"), cwd=tmp_path)


@pytest.mark.turn(1)
@pytest.mark.ray
def test_03_train_frozen_lake(tmp_path: Path) -> None:
    said = run(str(EXAMPLES / "03_train_frozen_lake.py"), "lake", cwd=tmp_path)
    assert "held-out success" in said
    assert {"config.toml", "metrics.jsonl", "summary.json", "success.png"} <= {
        path.name for path in (tmp_path / "lake").iterdir()
    }
    summary = json.loads((tmp_path / "lake" / "summary.json").read_text(encoding="utf-8"))
    measured = run("-m", "ale", "eval", "./lake", cwd=tmp_path)
    final = summary["eval_final"]
    ends = f"[{final['success_low']:.4f}, {final['success_high']:.4f}]"
    assert (
        f"success {summary['success_final']:.4f} {ends} of an optimum of {summary['optimum']:.4f}" in measured
    )


def test_04_replay(tmp_path: Path) -> None:
    said = run(str(EXAMPLES / "04_replay.py"), "records", cwd=tmp_path)
    assert said.count(": identical") == 4


def test_06_own_dockerfile() -> None:
    """It is read as the task that it says it is; `test_own_dockerfile.py` runs the whole story."""
    (task,) = read_tasks(EXAMPLES / "06_own_dockerfile")
    assert task.build.context == EXAMPLES / "06_own_dockerfile" / "environment"
    assert task.solution
    assert {file.path for file in task.verifier.files} == {"/tests/test.sh"}
    assert "best.txt" in task.instruction


def test_05_own_env(tmp_path: Path) -> None:
    """Installed as pip would leave it: the module and its entry point on the path."""
    own = EXAMPLES / "05_own_env"
    shutil.copy(own / "guess_number.py", tmp_path)
    project = tomllib.loads((own / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = tmp_path / "guess_number_env-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Name: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in project["entry-points"].items()
    )
    (info / "entry_points.txt").write_text(points, encoding="utf-8")
    assert "guess_number" in run("-m", "ale", "env", "list", cwd=tmp_path, path=tmp_path)
    words = ["rollout", "--env", "guess_number", "--policy", "oracle", "--episodes", "20"]
    assert "20 of 20 passed" in run("-m", "ale", *words, cwd=tmp_path, path=tmp_path)


def test_07_word_game(tmp_path: Path) -> None:
    """That it trains is in `test_class_environment.py`."""
    shutil.copy(EXAMPLES / "07_word_game" / "words.py", tmp_path)
    words = ["rollout", "--env", "words:WordGame", "--policy", "oracle", "--episodes", "20"]
    assert "20 of 20 passed" in run("-m", "ale", *words, cwd=tmp_path)
