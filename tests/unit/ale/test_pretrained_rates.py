"""What a pretrained model is trained with: no layer of ours has a rate that destroys it, and games tell it their rules."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from ale.config import MOST_PRETRAINED_LR, resolve
from rock_env import plugins
from rock_env.grading.model import Build, Task, Verifier
from rock_env.tasksets import registered
from rock_env.tasksets.registered import Registration
from trainer.config import engine_of

PRETRAINED = "somebody/a-pretrained-model"
RECIPES = {
    path.name.removesuffix(".toml"): tomllib.loads(path.read_text(encoding="utf-8"))
    for path in (resources.files("ale") / "recipes").iterdir()
    if path.name.endswith(".toml")
}
GAMES = {"frozen_lake": "left down right up", "sokoban": "up down left right", "fork_chain": ""}
ALGOS = plugins.names("ale.algorithms")


def test_one_engine_takes_pretrained_models() -> None:
    """The tests below are about its models; another one that reads prose must join them."""
    engines = {name: plugins.load("ale.engines", name) for name in plugins.names("ale.engines")}
    assert [name for name, spec in engines.items() if getattr(spec, "prose", None) is not None] == ["hf"]
    assert engine_of(PRETRAINED) == "hf"


def check_rates(options: dict[str, Any], overrides: list[str], *, imitation: bool = False) -> None:
    made = resolve(options={"model": PRETRAINED, **options}, overrides=overrides, imitation=imitation)
    rates = (made.config.optim.lr, made.config.warmup.lr)
    assert max(rates) <= 1e-5, "MOST_PRETRAINED_LR is where the warning begins; ours stay a tenth below"
    assert MOST_PRETRAINED_LR == 1e-4
    assert made.notices == ()
    assert made.config.guard.text_rise, "the guard is on"
    assert made.config.guard.legal_fall


def variants(env: str) -> Iterator[list[str]]:
    """Yield the settings that choose each variant of a recipe, and none."""
    yield []
    for variant in RECIPES[env].get("variant", []):
        match = {k: v for k, v in variant["match"].items() if k not in ("engine", "algo")}
        if match:
            yield [f"{name}={json.dumps(value)}" for name, value in match.items()]


@pytest.mark.parametrize("env", sorted(plugins.names("ale.envs")))
def test_no_recipe_gives_a_pretrained_model_a_rate_that_destroys_it(env: str) -> None:
    for overrides in variants(env) if env in RECIPES else [[]]:
        for algo in ALGOS:
            check_rates({"env": env, "algo": algo}, overrides)
        check_rates({"env": env, "algo": "bc"}, overrides, imitation=True)


def test_no_layer_for_tasks_or_agents_does_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALE_HOME", str(tmp_path))
    task = Task("one", "Do it.", Build(image="busybox"), Verifier(("true",), "exit_code"))
    record = Registration(
        name="mine", digest="d" * 64, source="/x", registered_at=0.0, tasks=1, images=("busybox",)
    )
    registered.store(record, [task])
    for algo in ALGOS:
        check_rates({"env": "mine", "algo": algo}, [])
    check_rates({"env": "mine", "algo": "bc"}, [], imitation=True)
    for env in ("mine", "swe", "terminal"):
        agent = {"agent": {"name": "qwen-code"}, "env": env, "algo": "grpo"}
        check_rates(agent, [])
        chosen = resolve(options=agent).config  # the model that the layer for agents brings
        assert (chosen.engine, chosen.optim.lr, chosen.warmup.lr) == ("hf", 1e-6, 1e-5)


@pytest.mark.parametrize("option", ["optim.lr", "warmup.lr"])
def test_a_users_own_high_rate_is_kept_and_warned_of(option: str) -> None:
    made = resolve(options={"env": "frozen_lake", "model": PRETRAINED}, overrides=[f"{option}=2e-3"])
    section, _, name = option.partition(".")
    assert getattr(getattr(made.config, section), name) == 2e-3
    (notice,) = made.notices
    assert notice.startswith(f"{option}=0.002 in the command line is likely to destroy the pretrained model")
    assert "expected at most 0.0001" in notice
    assert (
        resolve(options={"env": "frozen_lake", "model": "tiny"}, overrides=[f"{option}=2e-3"]).notices == ()
    )


def test_an_adapter_alone_bears_ten_times_as_much() -> None:
    for rate, warned in (("9e-4", False), ("2e-3", True)):
        made = resolve(
            options={"env": "frozen_lake", "model": PRETRAINED},
            overrides=[f"optim.lr={rate}", "engine_options.lora_rank=16"],
        )
        assert bool(made.notices) is warned
        assert all("expected at most 0.001," in notice for notice in made.notices)


@pytest.mark.parametrize("env", GAMES)
def test_a_game_tells_a_pretrained_model_the_rules_and_takes_a_sentence_for_an_answer(env: str) -> None:
    config = resolve(options={"env": env, "model": PRETRAINED}).config
    assert config.agent.system, "the instruction is sent"
    assert config.sampling.max_tokens >= 32
    spec = plugins.load_env(env)
    params = spec.params.model_validate(config.env_args)
    task = spec.tasks(params).get("train", 0)
    game: Any = spec.factory(params)
    observation, _ = game.reset(task, 0)
    actions = GAMES[env].split() or observation.split()[-2:]
    assert "Answer with one" in task.instruction
    for action in actions:
        assert action in f"{task.instruction} {observation}"
        game.reset(task, 0)
        assert not game.step(f"Let me think. The best move is **{action}**.").info.get("illegal")
    game.reset(task, 0)
    assert game.step("I would rather not say.").info["illegal"]


@pytest.mark.parametrize("env", GAMES)
def test_the_tiny_policy_keeps_its_own_settings(env: str) -> None:
    config = resolve(options={"env": env, "model": "tiny"}).config
    assert not config.agent.system
    assert config.sampling.max_tokens <= 3
    assert config.optim.lr >= 1e-3
    assert config.warmup.lr == 2e-3


@pytest.mark.parametrize("env", ["frozen_lake", "math", "swe", "browser"])
def test_ipa_learns_from_failures_of_a_pretrained_model(env: str) -> None:
    def options(*overrides: str, model: str = PRETRAINED) -> dict[str, Any]:
        chosen = {"env": env, "model": model, "algo": "ipa"}
        return resolve(options=chosen, overrides=overrides).config.algo_options

    ours = options()
    assert (ours["baseline"], ours["neg_weight"]) == ("leave_one_out", 0.3)
    assert options("algo_options.neg_weight=0.7")["neg_weight"] == 0.7
    without = options("algo_options.baseline=none")
    assert (without["baseline"], without["neg_weight"]) == ("none", 0.0), "as before: rejection sampling"
    assert options("algo_options.baseline=state_mean")["neg_weight"] == 0.0
    assert options(model="tiny")["neg_weight"] == 0.0, "the recipes of built-in policies are their own"
