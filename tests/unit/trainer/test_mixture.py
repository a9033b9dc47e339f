"""Several environments in one run: who gets which group, and what of them is kept apart."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_fleet import Listening, LocalFleet, config_of, learn, local_run
from pydantic import ValidationError

from agent_runtime.store import kept_segment, read_segment
from agent_runtime.types import Trajectory
from trainer.config import Share, TrainConfig, dealt, shares_in
from trainer.environments import name_of
from trainer.errors import CheckpointError
from trainer.metrics import read_summary
from trainer.rollout.pools import Pools
from trainer.run import Run

MIXTURE = "frozen_lake:0.6,fork_chain:0.4"
ARGS = {"frozen_lake": {"max_turns": 6}, "fork_chain": {"length": 2, "width": 2, "crucial": 0}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "math:0.4,frozen_lake:0.5",
            "the shares are 0.9 together, expected 1: such as math:4/9,frozen_lake:5/9",
        ),
        ("math:0.4,frozen_lake", "got 'frozen_lake' among several environments, expected NAME:SHARE"),
        ("math:0.4,frozen_lake:most", "got 'frozen_lake:most' among several environments"),
        ("math:0.4,frozen_lake:-0.6", "expected NAME:SHARE such as math:0.4"),
        ("math:0,frozen_lake:1", "the share of 'math' is 0, expected a number above 0 and below 1"),
        ("math:1/0,frozen_lake:1", "the share of 'math' is no number: got 1/0"),
        ("math:0.5,math:0.5", "environment 'math' comes twice"),
        ("math:0.5", "'math:0.5' is one environment, which has no share: write 'math'"),
        ("a:.33333,b:.66667", "are too fine: expected at most four decimal places"),
        (",".join(f"e{n}:1/17" for n in range(17)), "got 17 environments, expected at most 16"),
        ("a:1e9,b:1", "expected NAME:SHARE"),
    ],
)
def test_a_mixture_that_is_none_is_refused_with_the_remedy(text: str, said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TrainConfig(env=text)
    assert said in str(refused.value)


def test_an_environment_of_a_library_is_one_although_it_has_a_colon() -> None:
    assert shares_in("gym:phys2d/CartPole-v1") == (Share("gym:phys2d/CartPole-v1", Fraction(1)),)
    assert shares_in("gym:a:1/3, b:2/3") == (Share("gym:a", Fraction(1, 3)), Share("b", Fraction(2, 3)))


def test_arguments_of_a_mixture_say_whose_they_are() -> None:
    with pytest.raises(
        ValidationError, match=r"env_args.max_turns=6 is of none .* env_args.frozen_lake.max_turns"
    ):
        TrainConfig(env=MIXTURE, env_args={"max_turns": 6})
    alone = TrainConfig(env=MIXTURE, env_args=ARGS).alone("fork_chain")
    assert (alone.env, alone.env_args) == ("fork_chain", ARGS["fork_chain"])


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[Share, ...]:
    weights = draw(st.lists(st.integers(1, 60), min_size=2, max_size=6))
    return tuple(Share(f"e{n}", Fraction(weight, sum(weights))) for n, weight in enumerate(weights))


@given(mixtures(), st.integers(0, 500), st.integers(0, 40), st.integers(0, 40))
def test_shares_hold_at_every_place_and_do_not_depend_on_the_steps(
    shares: tuple[Share, ...], first: int, one: int, two: int
) -> None:
    whole = dealt(shares, first, one + two)
    apart = Counter(dealt(shares, first, one)) + Counter(dealt(shares, first + one, two))
    assert sum(whole.values()) == one + two
    assert {env: count for env, count in whole.items() if count} == apart
    so_far = dealt(shares, 0, first)
    assert all(-len(shares) < each.share * first - so_far[each.env] for each in shares)
    assert all(so_far[each.env] - each.share * first < 1 for each in shares)
    period = max(each.share.denominator for each in shares)
    if all(period % each.share.denominator == 0 for each in shares):
        assert dealt(shares, first, period) == {each.env: each.share * period for each in shares}


def test_one_environment_has_every_group() -> None:
    assert dealt(shares_in("math"), 17, 5) == {"math": 5}


def mixed_config(**changes: Any) -> TrainConfig:
    return config_of(
        **{
            "env": MIXTURE,
            "env_args": ARGS,
            "steps": 4,
            "sampling": {"max_tokens": 3},
            "rollout": {"groups_per_step": 4, "group_size": 3},
            "warmup": {"trajectories": 5, "epochs": 1, "held_out": 0.0},
            "curriculum": {"tasks": "pass_rate"},
            "filter": {"dynamic": "on", "dynamic_extra": 1.0},
            "eval": {"tasks": 3, "every": 0, "apart": ["train"]},
            **changes,
        }
    )


def played(folder: Path, kind: str, step: int | None = None) -> list[Trajectory]:
    path = kept_segment(folder, kind, step)
    return list(read_segment(path)) if path.exists() else []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    local_run(folder, mixed_config())
    return folder


def records(folder: Path, kind: str) -> list[dict[str, float]]:
    every = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record for record in every if record["kind"] == kind]


def test_groups_experts_and_evaluations_are_of_each_environment_by_its_share(whole: Path) -> None:
    config = mixed_config()
    for step, record in enumerate(records(whole, "train"), start=1):
        batch = played(whole, "step", step)
        groups = Counter({t.group_id: name_of(t) for t in batch}.values())
        assert groups == dealt(config.shares, 4 * (step - 1), 4)
        assert len({t.group_id for t in batch}) == 4
        for env in ARGS:
            asked = {t.group_id for t in (*batch, *played(whole, "set_aside", step)) if name_of(t) == env}
            assert record[f"env/{env}/groups"] == len(asked)
            assert record[f"env/{env}/anchors/experts"] > 0
        assert "anchors/experts" not in record
    experts = played(whole, "expert")
    assert Counter(map(name_of, experts)) == {"frozen_lake": 3, "fork_chain": 2}
    assert len({t.id for t in experts}) == 5
    evaluated = played(whole, "eval", 4)
    assert Counter((name_of(t), t.task_id.partition("/")[0]) for t in evaluated) == {
        (env, split): 3 for env in ARGS for split in ("held_out", "train")
    }
    assert len({t.id for t in evaluated}) == len(evaluated)


def test_the_evaluation_of_a_mixture_is_the_mean_by_shares_of_what_each_earned(whole: Path) -> None:
    summary = read_summary(whole)
    assert summary is not None
    last = records(whole, "eval")[-1]
    passed = {
        env: [
            t.passed for t in played(whole, "eval", 4) if name_of(t) == env and t.task_id.startswith("held")
        ]
        for env in ARGS
    }
    each = {env: sum(own) / len(own) for env, own in passed.items()}
    assert {env: last[f"env/{env}/success"] for env in ARGS} == each == dict(summary.envs_final)
    assert last["success"] == pytest.approx(0.6 * each["frozen_lake"] + 0.4 * each["fork_chain"])
    assert (last["episodes"], last["env/fork_chain/episodes"]) == (6, 3)
    assert summary.envs_warmup.keys() == ARGS.keys()


def test_a_group_without_variance_gives_way_to_one_of_its_own_environment(whole: Path) -> None:
    aside = [t for step in range(1, 5) for t in played(whole, "set_aside", step)]
    assert {name_of(t) for t in aside}, "no group was replaced: the test shows nothing"


def test_a_run_that_was_stopped_goes_on_with_the_same_groups_to_the_last_bit(
    whole: Path, tmp_path: Path
) -> None:
    config, observer = mixed_config(), Listening()
    with Run(config, tmp_path, LocalFleet(config), observer, resume=False) as run:  # type: ignore[arg-type]
        run.record_experts()
        run.warm_up()
        run.evaluate_warmup()
        _steps(run, [1, 2])
        run.save()
    with Run(config, tmp_path, LocalFleet(config), observer, resume=True) as run:  # type: ignore[arg-type]
        assert list(run.remaining_steps()) == [3, 4]
        _steps(run, [3, 4])
        run.finish()
    for step in (3, 4):
        one, two = (kept_segment(folder, "step", step) for folder in (whole, tmp_path))
        assert [(t.id, t.env, t.task_id, t.actions) for t in read_segment(one)] == [
            (t.id, t.env, t.task_id, t.actions) for t in read_segment(two)
        ]
    (ours,), (theirs,) = ((folder / "model").glob("*.safetensors") for folder in (whole, tmp_path))
    assert ours.read_bytes() == theirs.read_bytes()


def _steps(run: Run, steps: list[int]) -> None:
    for step in steps:
        learn(run, step)


def test_a_reward_worker_rewards_one_environment_of_several(tmp_path: Path) -> None:
    route = {"worker": "rule", "match": {"env": "fork_chain"}, "options": {"check": "legal_turns"}}
    local_run(
        tmp_path, mixed_config(steps=1, reward={"routes": [route]}, algo_options={"turn_rewards": True})
    )
    rewarded = {
        (name_of(t), t.reward_source is not None) for t in played(tmp_path, "step", 1) if t.has_reward
    }
    assert rewarded == {("frozen_lake", False), ("fork_chain", True)}


def test_a_checkpoint_of_other_environments_is_refused() -> None:
    pools = Pools(mixed_config())
    state = pools.state()
    pools.restore(state)
    with pytest.raises(CheckpointError, match="holds the anchors of math, fork_chain, expected"):
        pools.restore({"math": state["frozen_lake"], "fork_chain": state["fork_chain"]})
