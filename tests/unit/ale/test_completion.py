"""What a shell completes on the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ale import completion


def test_names_of_plugins_are_completed() -> None:
    assert completion.environments("fro") == ["frozen_lake"]
    assert completion.algorithms("gr") == ["grpo"]
    assert completion.models("") == ["coder", "tiny", "smollm2"]


def test_runs_of_this_folder_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lake", "lake-again", "other"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert completion.runs("la") == ["lake", "lake-again"]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("ale tr", "train"),
        ("ale train --env fro", "frozen_lake"),
        ("ale train --agent qwe", "qwen-code"),
        ("ale algo show ip", "ipa"),
        ("ale train --stee", ""),
    ],
)
def test_a_shell_is_answered(typed: str, offered: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", "from ale.cli import main; main()"],
        env={**os.environ, "_ALE_COMPLETE": "complete_bash", **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == offered.split(), done.stderr
