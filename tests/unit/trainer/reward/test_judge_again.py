"""`ale replay score --judge`: a run's reward workers read its rollouts again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from reward_cases import config_of, reward, solved

from agent_runtime.store import read_segment, segment_path, write_segment
from agent_runtime.types import RolloutFailure, Trajectory
from ale.config import render
from ale.errors import Diverged, RecordError
from ale.replay.judging import judge_command
from ale.replay.rows import Outcomes
from trainer.reward.base import Answer, Sample

RULE = {"worker": "rule", "options": {"check": "test_judge_again:half"}}


def half(sample: Sample) -> Answer:
    return Answer(0.5)


def unanswered(trajectory: Trajectory) -> Trajectory:
    source = trajectory.reward_source
    assert source is not None
    failure = RolloutFailure("reward_unanswered", "the judge was away", len(trajectory.turns))
    return replace(trajectory.as_failed(failure), reward_source=source)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three rollouts: rightly judged, wrongly judged, and without its judge's answer."""
    folder = tmp_path / "run"
    folder.mkdir()
    config = config_of(RULE)
    (folder / "config.toml").write_text(render(config))
    judged, _ = reward(config, [replace(solved(), id=name) for name in "abc"], tmp_path / "before")
    right, wrong, lost = judged
    write_segment(segment_path(folder, "step", 1), [right, replace(wrong, reward=0.9), unanswered(lost)])
    return folder


def test_another_answer_is_told_and_kept_elsewhere(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in run.rglob("*"))
    with pytest.raises(Diverged, match="2 of 3 rollouts"):
        judge_command(str(run), None, outcomes=Outcomes(), out=tmp_path / "again", rock="")
    told = capsys.readouterr().out
    assert "3 of 3 graded; 2 have another reward" in told
    found = list(read_segment(segment_path(tmp_path / "again", "scored")))
    assert [(each.id, each.reward, each.env_reward) for each in found] == [(n, 0.5, 1.0) for n in "abc"]
    assert all(each.has_reward for each in found)
    assert sorted(path.name for path in run.rglob("*")) == before


def test_only_what_the_judge_did_not_answer(run: Path, tmp_path: Path) -> None:
    with pytest.raises(Diverged):
        judge_command(str(run), None, outcomes=Outcomes(errored=True), out=tmp_path / "again", rock="")
    (found,) = read_segment(segment_path(tmp_path / "again", "scored"))
    assert (found.id, found.reward) == ("c", 0.5)


def test_nothing_to_ask_is_said(run: Path, tmp_path: Path) -> None:
    write_segment(segment_path(run, "step", 1), [solved()])
    with pytest.raises(RecordError, match="is recorded: there is nothing to ask"):
        judge_command(str(run), None, outcomes=Outcomes(), out=None, rock="")
    (run / "config.toml").write_text(
        render(config_of(RULE).model_copy(update={"reward": config_of().reward}))
    )
    with pytest.raises(RecordError, match="has no reward worker"):
        judge_command(str(run), None, outcomes=Outcomes(), out=None, rock="")
