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


NOTEBOOKS = EXAMPLES / "08_notebooks"


def program_of(name: str, **parameters: object) -> str:
    """Return a notebook's code cells as a program, with these values in place of those of its cell of parameters."""
    cells = json.loads((NOTEBOOKS / name).read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []
    (given,) = [cell for cell in code if cell["metadata"].get("tags") == ["parameters"]]
    lines = "".join(given["source"]).splitlines()
    assert parameters.keys() <= {line.partition(" = ")[0] for line in lines}
    given["source"] = [*given["source"], *(f"\n{key} = {value!r}" for key, value in parameters.items())]
    return "\n\n".join("".join(cell["source"]) for cell in code)


def test_08_notebooks_are_all_run() -> None:
    assert {path.name for path in NOTEBOOKS.iterdir()} == {
        "own_environment.ipynb",
        "read_a_run.ipynb",
        "train.ipynb",
    }


@pytest.mark.turn(1)
@pytest.mark.ray
def test_08_notebook_train(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(program_of("train.ipynb", STEPS=2), encoding="utf-8")
    said = run("train.py", cwd=tmp_path)
    assert "of lakes that training never saw" in said
    assert "\nstep   2  success" in said
    assert "of 256 rollouts of the last step passed" in said


@pytest.mark.turn(1)
@pytest.mark.ray
def test_08_notebook_own_environment(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(program_of("own_environment.ipynb", STEPS=2), encoding="utf-8")
    said = run("own.py", cwd=tmp_path)
    assert "of games that training never saw" in said
    assert "\nstep 1: 0." in said


@pytest.mark.skipif(
    importlib.util.find_spec("pandas") is None,
    reason="pandas is not here: make .venv/.ready installs it with the extra dev",
)
def test_08_notebook_read_a_run(tmp_path: Path) -> None:
    kept = EXAMPLES.parent / "tests" / "unit" / "kept" / "run"
    program = program_of("read_a_run.ipynb", RUN=str(kept)) + "\nprint(curve, by_task)\n"
    (tmp_path / "read.py").write_text(program, encoding="utf-8")
    said = run("read.py", cwd=tmp_path)
    assert "success_low" in said
    assert "train/" in said
