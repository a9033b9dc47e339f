"""docs/tutorial.md, followed step by step as it is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from integration.docker_engine import engine, skip_without
from integration.docs.page_steps import Steps

__all__ = ["engine"]

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.mark.turn(0)
def test_train_look_and_own_algorithm(tmp_path: Path) -> None:
    steps = Steps("tutorial.md", tmp_path)
    said = steps.follow(without={"docker"})
    runs = steps.folder / "runs"
    for run, count in (("first", 10), ("second", 5)):
        summary = json.loads((runs / run / "summary.json").read_text(encoding="utf-8"))
        assert summary["steps"] == count
    assert 'algo = "my_best"' in (runs / "second" / "config.toml").read_text(encoding="utf-8")
    assert (runs / "first" / "success.png").is_file()
    assert "came out as recorded" in said


@pytest.mark.usefixtures("engine")
def test_own_environment(tmp_path: Path) -> None:
    skip_without("debian:bookworm-slim")
    steps = Steps("tutorial.md", tmp_path)
    said = steps.follow(only={"docker"})
    assert "PASS oracle scores 1" in said
    assert "2 of 2 passed" in said
    assert (steps.folder / "runs" / "visits-run" / "summary.json").is_file()


def test_every_step_has_a_reader() -> None:
    """A block that no test would take is a step that is not run."""
    kinds = {
        (block.language, block.mark) for block in Steps.blocks_of("tutorial.md") if block.language == "sh"
    }
    assert kinds == {("sh", ""), ("sh", "docker"), ("sh", "by-hand")}
