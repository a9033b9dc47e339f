"""What `ale.api` refuses before anything heavy starts, and what is left of a run that could not begin."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from reward_cases import played
from rich.console import Console

from agent_runtime.types import RolloutFailure, StopReason
from ale import api
from ale.config import resolve
from ale.training import runs
from ale.training.progress import PlainProgress
from ale.training.rollouts import RolloutCommand, rollout_command
from trainer.config import TrainConfig
from trainer.errors import ConfigError, Halted

# Of this family no generated task as hard as these is held out.
NARROW = ["env_args.families=wrong_operator", "env_args.min_difficulty=0.62", "env_args.max_difficulty=0.64"]


def test_a_split_without_tasks_is_refused_by_the_run_before_it_has_a_folder(tmp_path: Path) -> None:
    config = resolve(options={"env": "swe"}, overrides=NARROW).config
    with pytest.raises(ConfigError, match=r"split 'held_out' has no task .*got train 2, held_out 0"):
        api.train(config, run_folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_split_without_tasks_is_refused_by_rollouts_and_evaluations() -> None:
    arguments = {"families": "wrong_operator", "min_difficulty": 0.62, "max_difficulty": 0.64}
    command = RolloutCommand(
        env="swe",
        env_args=arguments,
        policy="oracle",
        agent=None,
        episodes=1,
        split="held_out",
        seed=0,
        out=None,
        rock="unix:/nowhere",
    )
    with pytest.raises(ConfigError, match=r"split 'held_out' has no task"):
        rollout_command(command)
    with pytest.raises(ConfigError, match=r"split 'held_out' has no task"):
        api.evaluate(resolve(options={"env": "swe"}, overrides=NARROW).config)


@pytest.mark.parametrize(
    "setting", ["rollout.branch_credit=leaf", 'rollout.train_labels=["main", "sub_agent"]']
)
def test_what_acts_on_sessions_is_refused_before_a_warm_up_that_would_be_in_vain(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"would do nothing: got agent.name=''.*--agent"):
        resolve(options={"env": "frozen_lake"}, overrides=[setting])
    assert resolve(options={"env": "swe", "agent": {"name": "qwen-code"}}, overrides=[setting]).config


def test_settings_that_are_refused_late_leave_the_name_free(tmp_path: Path) -> None:
    """Some are known to be wrong only once processes are asked for; a folder would then refuse the right ones."""
    config = resolve(options={"env": "frozen_lake"}).config
    with pytest.raises(ConfigError, match="--ray-address"):
        api.train(config, run_folder=tmp_path / "run", ray_address="127.0.0.1:1")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("resume", [False, True])
def test_what_has_begun_or_is_resumed_stays(
    resume: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = resolve(options={"env": "frozen_lake"}).config
    run = tmp_path / "run"
    if resume:  # killed before anything was recorded
        runs.open_new(run, config)
    else:  # refused after something was

        def begin(config: TrainConfig, folder: Path, **options: object) -> None:
            (folder / "metrics.jsonl").touch()
            raise ConfigError("the judge refused")

        monkeypatch.setattr(api, "train_loop", begin)
    with pytest.raises(ConfigError):
        api.train(config, run_folder=run, resume=resume, ray_address="127.0.0.1:1")
    assert (run / runs.CONFIG).is_file()


def test_a_setting_without_effect_is_said_before_the_run_begins(tmp_path: Path) -> None:
    config = resolve(
        options={"env": "frozen_lake"}, overrides=["rollout.workers=1", "rollout.engines=2"]
    ).config
    told = io.StringIO()
    observer = PlainProgress(Console(file=told), quiet=True)
    with pytest.raises(ConfigError, match="--ray-address"):
        api.train(config, run_folder=tmp_path / "run", ray_address="127.0.0.1:1", observer=observer)
    assert told.getvalue().startswith("note: rollout.engines=2 has no effect: rollout.workers=1 ask no more")


def test_an_evaluation_without_one_verdict_says_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    failure = RolloutFailure("env_lost", "The worker died.", 0)
    lost = replace(played("?"), reward=math.nan, passed=False, stop_reason=StopReason.FAILED, failure=failure)
    monkeypatch.setattr(api, "play_tasks", lambda config, ray_address, sampled: [lost, lost])
    with pytest.raises(Halted, match=r"all 2 .* env_lost: The worker died\. .*evaluate again"):
        api.evaluate(resolve(options={"env": "math"}).config)
