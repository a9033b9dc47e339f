"""A rule of somebody else that evals the policy's answer: what the answer does ends with its process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fences import why_not_isolated
from reward_cases import config_of, played, reward

from trainer.errors import ConfigError
from trainer.reward.base import Answer, Sample

RULE = {"worker": "rule", "options": {"check": "test_fenced_rule:evals"}}


def evals(sample: Sample) -> Answer:
    """Do what parsers of mathematics do in the end."""
    return Answer(float(eval(sample.trajectory.final_action)))


@pytest.fixture(autouse=True)
def _fenced() -> None:
    if why_not_isolated():
        pytest.skip(f"no namespaces here: {why_not_isolated()}")


def test_an_answer_reaches_nothing_of_the_trainer(tmp_path: Path) -> None:
    attacks = {
        f"open({str(tmp_path / 'written')!r}, 'w')": "FileNotFoundError",
        f"open({__file__!r}, 'a')": "OSError",
        f"__import__('os').kill({os.getpid()}, 9)": "ProcessLookupError",
    }
    for number, (attack, refused) in enumerate(attacks.items()):
        with pytest.raises(
            ConfigError, match=rf"'test_fenced_rule:evals' failed on trajectory .*: {refused}"
        ):
            reward(config_of(RULE), [played(attack)], tmp_path / f"run{number}")
    assert not (tmp_path / "written").exists()


def test_an_answer_that_ends_the_process_has_no_reward_and_others_have_theirs(tmp_path: Path) -> None:
    said = ["0.25", "__import__('os')._exit(3)", "0.75"]
    found, metrics = reward(config_of(RULE), [played(each) for each in said], tmp_path)
    assert [t.reward if t.has_reward else None for t in found] == [0.25, None, 0.75]
    assert found[1].failure is not None
    assert "gave no answer (EOFError): exit code 3" in found[1].failure.message
    assert metrics["reward/failed"] == 1


def test_an_answer_that_takes_for_ever_holds_up_no_other(tmp_path: Path) -> None:
    config = config_of(RULE, attempts=1, time_limit_s=5)
    forever = "next(n for n in __import__('itertools').count() if n < 0)"
    (found,), _ = reward(config, [played(forever)], tmp_path)
    assert not found.has_reward
    (found,), _ = reward(config, [played("0.5")], tmp_path)
    assert found.reward == 0.5
