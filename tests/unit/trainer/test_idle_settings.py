"""Settings that can do nothing beside the others: each is said, and none where it does something."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest

from ale.config import resolve
from rock_env.plugins import load_env
from trainer.config import TrainConfig
from trainer.idle import idle_settings

JUDGE = '{worker="judge", turn_weight=0.5, options={url="http://localhost/v1", model="m", gives="%s"}}'
RESETS = ["anchors.scheduler=sequential", "rollout.groups_per_step=8"]
TURNS = "algo_options.turn_rewards=true"

CASES: list[tuple[list[str], str, list[str]]] = [
    (
        ["anchors.scheduler=parallel", "rollout.groups_per_step=1"],
        "anchors.scheduler",
        ["rollout.groups_per_step=2"],
    ),
    (
        [*RESETS, "warmup.trajectories=0", "anchors.inject=0", "anchors.self_sampled=false"],
        "anchors.scheduler",
        ["anchors.self_sampled=true"],
    ),
    ([*RESETS, "anchors.replay_share=0.1"], "anchors.replay_share", ["anchors.replay_share=0.2"]),
    (
        ["anchors.scheduler=none", "anchors.replay_share=1"],
        "anchors.replay_share",
        ["anchors.scheduler=hint"],
    ),
    (["anchors.hint_turns=2"], "anchors.hint_turns", ["anchors.scheduler=hint"]),
    (["anchors.inject=4", "warmup.trajectories=0"], "anchors.inject", ["warmup.trajectories=1"]),
    (["anchors.inject=4", "anchors.inject_until=0"], "anchors.inject", ["anchors.inject_until=0.1"]),
    (["anchors.inject=4", "algo_options.lambda_il=0"], "anchors.inject", ["algo_options.lambda_il=0.1"]),
    (
        ["filter.dynamic=on", "filter.dynamic_extra=0.2", "rollout.groups_per_step=4"],
        "filter.dynamic",
        ["filter.dynamic_extra=0.25"],
    ),
    (["rollout.engines=2", "rollout.workers=1"], "rollout.engines", ["rollout.workers=2"]),
    (
        [TURNS, f"reward.routes=[{JUDGE % 'outcome'}]"],
        "turn_weight of the reward worker",
        [f"reward.routes=[{JUDGE % 'both'}]"],
    ),
    (["algo=bc", "reuse.trajectories=4"], "reuse.trajectories", ["algo=grpo"]),
]


def lake(settings: list[str]) -> TrainConfig:
    base = ["anchors.inject=0"] if not any("anchors.inject=" in each for each in settings) else []
    return resolve(options={"env": "frozen_lake"}, overrides=[*base, *settings]).config


@pytest.mark.parametrize(
    ("settings", "name", "remedy"), CASES, ids=[f"{n}-{c[1]}" for n, c in enumerate(CASES)]
)
def test_what_has_no_effect_is_said_and_what_has_is_not(
    settings: list[str], name: str, remedy: list[str]
) -> None:
    (said,) = idle_settings(lake(settings))
    assert said.startswith((f"{name}=", f"{name} 'judge'="))
    assert " has no effect: " in said
    assert idle_settings(lake([*settings, *remedy])) == []


RULE = '{worker="rule", options={check="final_answer"}, match={%s}}'


@pytest.mark.parametrize(
    ("routes", "named", "because"),
    [
        ([RULE % 'famly="*"'], [0], "the fields to match are env, family, split, symbols, words"),
        (
            [RULE % 'family="linear*", split="held_out"'],
            [0],
            "none of 32 tasks drawn from 'train' comes to 'rule'",
        ),
        ([RULE % "", RULE % 'family="*"'], [1], "because of it or of a route before"),
        ([RULE % 'family="[a-k]*"', RULE % 'family="[l-z]*"', RULE % 'env="math"'], [2], "route before"),
        ([RULE % 'family="[a-k]*"', RULE % 'split="train"'], [], ""),
    ],
)
def test_a_route_to_which_no_task_comes_is_named_with_the_fields_there_are(
    routes: list[str], named: list[int], because: str
) -> None:
    settings = [f"reward.routes=[{', '.join(routes)}]", "anchors.inject=0", "warmup.trajectories=0"]
    settings.append("env_args.families=arithmetic,linear")
    said = idle_settings(resolve(options={"env": "math", "algo": "reinforce"}, overrides=settings).config)
    assert [each.partition(".match=")[0] for each in said] == [f"reward.routes[{n}]" for n in named]
    assert all(because in each for each in said)


RECIPES = sorted(
    path.name.removesuffix(".toml")
    for path in (resources.files("ale") / "recipes").iterdir()
    if path.name.endswith(".toml")
)


@pytest.mark.parametrize("env", RECIPES)
@pytest.mark.parametrize("imitation", [False, True])
def test_no_recipe_brings_a_setting_without_effect(env: str, imitation: bool) -> None:
    load_env(env)
    options: dict[str, Any] = {"env": env, **({"algo": "bc"} if imitation else {})}
    assert idle_settings(resolve(options=options, imitation=imitation).config) == []
