"""docs/tutorial.md, followed step by step as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration.docker_engine import engine, skip_without
from integration.docs.page_steps import Steps

from ale.training.reading import read_run

__all__ = ["engine"]

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]

RISES = {"first": 0.3, "larger": 0.2, "mine": 0.2, "grpo": 0.2}
"""By run, by how much success rises at least."""


def learned(steps: Steps, *names: str) -> None:
    """Fail unless these runs went to their end and learned."""
    runs = {name: read_run(steps.folder / "runs" / name) for name in names}
    assert all(run.steps == run.steps_wanted for run in runs.values())
    rose = {name: run.curve[-1].success - run.curve[0].success for name, run in runs.items()}
    assert all(rose[name] >= RISES[name] for name in names), rose


@pytest.mark.turn(0)
def test_train_and_look(tmp_path: Path) -> None:
    steps = Steps("tutorial.md", tmp_path)
    said = steps.follow(without={"docker", "class"})
    learned(steps, "first")
    assert (steps.folder / "runs" / "first" / "success.png").is_file()
    assert "came out as recorded" in said


@pytest.mark.turn(1)
def test_own_class_and_own_algorithm(tmp_path: Path) -> None:
    steps = Steps("tutorial.md", tmp_path)
    steps.follow(only={"class"})
    learned(steps, "larger", "mine", "grpo")
    assert 'algo = "my_best"' in (steps.folder / "runs" / "mine" / "config.toml").read_text(encoding="utf-8")
    assert (steps.folder / "compare.png").is_file()


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
    assert kinds == {("sh", ""), ("sh", "class"), ("sh", "docker"), ("sh", "by-hand")}
