"""A release: what is built from one commit is the same twice, and its version is told in one place."""

import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import ale

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
def test_two_builds_of_a_commit_are_equal(tmp_path: Path) -> None:
    script = [sys.executable, ROOT / "scripts/build_release.py", "--out", tmp_path]
    told = subprocess.run(script, capture_output=True, text=True, check=True).stdout.splitlines()
    built = sorted(path.name for path in tmp_path.iterdir())
    name = f"ale_rl-{version('ale-rl')}"
    assert built == [f"{name}-py3-none-any.whl", f"{name}.tar.gz"]
    assert [Path(line.split()[1]).name for line in told] == built


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == version("ale-rl") == ale.__version__
