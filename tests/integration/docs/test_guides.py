"""The guides of docs/extend, from an empty folder to a run, and the README's programs, as they are printed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from integration.docs.page_steps import Steps
from unit.docs.pages import ROOT, blocks

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600), pytest.mark.turn(0)]


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_an_algorithm(tmp_path: Path) -> None:
    steps = Steps("extend/algorithm.md", tmp_path)
    said = steps.follow()
    assert "3 passed" in said
    folder = steps.folder / "runs" / "best"
    assert "margin = 0.1" in (folder / "config.toml").read_text(encoding="utf-8")
    learned = [line for line in lines(folder / "metrics.jsonl") if line["kind"] == "train"]
    assert [line["step"] for line in learned] == [1, 2, 3]
    assert all("best_of/weight" in line for line in learned)


def test_a_reward(tmp_path: Path) -> None:
    steps = Steps("extend/reward.md", tmp_path)
    said = steps.follow()
    assert "1 passed" in said
    for run in ("brief", "brief-rule"):
        answers = lines(steps.folder / "runs" / run / "rewards" / "answers.jsonl")
        assert answers
    assert any(
        "turns: " in str(answer)
        for answer in lines(steps.folder / "runs" / "brief" / "rewards" / "answers.jsonl")
    )


def test_a_sampler(tmp_path: Path) -> None:
    steps = Steps("extend/sampler.md", tmp_path)
    said = steps.follow()
    assert "6 passed" in said
    assert "skipped" not in said
    folder = steps.folder / "runs" / "lake"
    assert 'sampler = "plain"' in (folder / "config.toml").read_text(encoding="utf-8")
    assert [line["step"] for line in lines(folder / "metrics.jsonl") if line["kind"] == "train"] == [1, 2]


def test_a_parallelism(tmp_path: Path) -> None:
    said = Steps("extend/parallelism.md", tmp_path).follow()
    assert "3 passed" in said


@pytest.mark.parametrize("number", [0, 1])
def test_the_readmes_python(number: int, tmp_path: Path) -> None:
    programs = [block for block in blocks(ROOT / "README.md") if block.language == "python"]
    assert len(programs) == 2
    done = subprocess.run(
        [sys.executable, "-c", programs[number].text],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ("", "b'hi\\n'\n")[number]
