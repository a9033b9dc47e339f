"""A setting is declared once: a field added to a copy of the tree is in the file, on the command line and in its help."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("agent_runtime", "ale", "rock_env", "sandboxes", "trainer")
TRAINING = '''    patience: PositiveInt = 3
    """Evaluations without a gain that it bears."""
'''
SERVER = """    patience: int = field(default=3, metadata=_told("Calls that it bears.", "N", least=1))
"""


def tree(folder: Path, changed: str, before: str, more: str) -> Path:
    """Make a tree in which one file has more before a line; all others are those of this repository."""
    package = changed.partition("/")[0]
    for each in PACKAGES:
        if each != package:
            (folder / each).symlink_to(ROOT / each)
    shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / changed).read_text(encoding="utf-8")
    assert text.count(before) == 1
    (folder / changed).write_text(text.replace(before, more + before), encoding="utf-8")
    return folder


def run(folder: Path, *command: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={
            "PATH": "/usr/bin:/bin",
            "COLUMNS": "200",
            "ALE_HOME": str(folder / "home"),
            "HOME": str(folder),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_a_setting_of_training(tmp_path: Path) -> None:
    folder = tree(tmp_path, "trainer/config/watching.py", "    progress_tasks:", TRAINING)
    train = ("ale", "train", "--env", "frozen_lake", "--dry-run")
    shown = run(folder, *train, "-s", "eval.patience=7")
    assert "patience = 7" in shown
    assert "Evaluations without a gain that it bears." in shown
    (folder / "run.toml").write_text("[eval]\npatience = 5\n", encoding="utf-8")
    assert "patience = 5" in run(folder, *train, "--config", "run.toml")
    assert "eval.patience" in run(folder, *train, "-s", "eval.patience=0", code=2)
    assert "Did you mean 'eval.patience'" in run(folder, *train, "-s", "eval.patienc=1", code=2)


@pytest.mark.timeout(300)
def test_a_setting_of_the_server(tmp_path: Path) -> None:
    folder = tree(tmp_path, "rock_env/server/options.py", "    log_format: LogFormat", SERVER)
    for command in (("rock_env.server", "--help"), ("ale", "rock", "serve", "--help")):
        shown = run(folder, *command)
        assert "--patience" in shown
        assert "Calls that it bears." in shown
    assert "patience" in run(folder, "ale", "rock", "serve", "--patience", "0", code=2)
