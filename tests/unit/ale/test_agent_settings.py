"""A run behind a CLI agent: the settings that follow, those that are refused, and what is said before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_agent import own_agent_yaml, shelf_with_own_agent

from ale import config
from rock_env.errors import UnknownName
from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.rollout.cli_agents import agent_options
from trainer.rollout.tasks import agent_of

AGENT = {"env": "swe", "agent": {"name": "qwen-code"}}


def test_an_agent_brings_its_recipe_below_whoever_chose_it(tmp_path: Path) -> None:
    made = config.resolve(options={**AGENT, "model": "tiny"}, overrides=["agent.max_turns=7"]).config
    assert (made.agent.name, made.agent.max_turns, made.agent.window_turns) == ("qwen-code", 7, 0)
    assert (made.warmup.trajectories, made.anchors.scheduler, made.anchors.self_sampled) == (0, "none", False)
    assert made.rollout.batching == "eager"
    assert agent_of(made).max_turns == 7
    file = tmp_path / "config.toml"
    file.write_text(config.render(made))
    assert (
        config.resolve(file=file).config == made
    )  # what was set in a run stays, also where the agent is named again
    assert config.resolve(file=file, options={"agent": {"name": "qwen-code"}}).config == made


def test_an_agent_brings_a_model_that_knows_tools_unless_one_was_chosen(tmp_path: Path) -> None:
    assert config.resolve(options={"env": "swe"}).config.model == "coder"
    assumed = config.resolve(options=AGENT)
    assert assumed.config.model == "Qwen/Qwen3-0.6B"
    assert "no --model was named: the agent qwen-code plays with Qwen/Qwen3-0.6B" in assumed.notices
    chosen = config.resolve(options={**AGENT, "model": "coder"})
    assert (chosen.config.model, chosen.notices) == ("coder", ())
    file = tmp_path / "config.toml"
    file.write_text('model = "tiny"')
    assert config.resolve(file=file, options=AGENT).config.model == "tiny"


def test_a_run_without_an_agent_is_played_by_one_all_the_same(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(config.render(config.resolve(options={"env": "swe", "model": "tiny"}).config))
    assert config.resolve(file=file, options={"agent": {"name": "pi"}}).config.warmup.trajectories == 0
    assert config.resolve(file=file).config.warmup.trajectories == 2


@pytest.mark.parametrize(
    ("override", "said"),
    [
        (
            "warmup.trajectories=3",
            "warmup.trajectories must be 0, got 3: an oracle's actions are no agent's turns",
        ),
        ('warmup.data=["runs/x"]', "warmup.data must be"),
        (
            "anchors.scheduler=sequential",
            "anchors.scheduler must be 'none', got 'sequential': an agent begins",
        ),
        ("anchors.inject=2", "anchors.inject must be 0"),
        ("anchors.self_sampled=true", "an agent's turns are no actions to replay"),
        ("rollout.batching=lockstep", "rollout.batching must be 'eager'"),
        ("agent.window_turns=2", "agent.window_turns=2 would do nothing: got agent.name='qwen-code'"),
        ("agent.kind=long_horizon", "agent.kind='long_horizon' would do nothing"),
    ],
)
def test_what_takes_turns_for_actions_is_refused(override: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.resolve(options={**AGENT, "model": "tiny"}, overrides=[override])
    assert said in str(caught.value)


def test_the_budget_of_a_session_is_refused_for_an_agent_of_ours() -> None:
    with pytest.raises(ConfigError, match=r"agent\.session_tokens=5 would do nothing"):
        config.resolve(overrides=["agent.session_tokens=5"])


def test_an_unknown_agent_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'qwen-code'"):
        config.resolve(options={**AGENT, "agent": {"name": "qwen-cod"}})


def resolved(**options: object) -> TrainConfig:
    return config.resolve(options={**AGENT, "model": "tiny", **options}).config


def test_what_an_agent_cannot_play_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALE_AGENTS", str(shelf_with_own_agent(tmp_path)))
    with pytest.raises(ConfigError, match="Run: ale agent install qwen-code"):
        agent_options(resolved())
    with pytest.raises(ConfigError, match=r"'coder' .* cannot\. Choose an instruct model"):
        agent_options(resolved(model="coder"))
    with pytest.raises(
        ConfigError, match="the answer to a task of code is one: every rollout would be graded as a failure"
    ):
        agent_options(resolved(env="code"))
    with pytest.raises(ConfigError, match="sokoban is an environment without one"):
        agent_options(resolved(env="sokoban"))
    with pytest.raises(ConfigError, match="the agent 'iflow' cannot be had"):
        agent_options(resolved(agent={"name": "iflow"}))
    own = tmp_path / "own.yaml"
    own.write_text(own_agent_yaml("work"))
    assert agent_options(resolved(agent={"name": str(own)})) == [f"--shelf={tmp_path / 'shelf'}"]
    elsewhere = resolved(rollout={"rock_address": "unix:/x"})  # another server's shelf is not known here
    assert agent_options(elsewhere) == []
    assert agent_options(TrainConfig()) == []
