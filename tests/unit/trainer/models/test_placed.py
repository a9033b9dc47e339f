"""Which process is in which bundle of a run's pool, and what is refused by name before anything starts."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from trainer.config import TrainConfig
from trainer.errors import ConfigError
from trainer.models.placed import check_placement, placement_lines, processes
from trainer.protocols.memory import Role

GB = 10**9
ROLES = [
    Role("learner", 1, "cuda", 20 * GB, {}, 12 * GB),
    Role("reference", 1, "cuda", 2 * GB, {}, 2 * GB),
    Role("sampler", 2, "cuda", 10 * GB, {}, 1 * GB),
    Role("store", 1, "host", 4 * GB, {}, 4 * GB),
]
KL = {"algo": "reinforce", "algo_options": {"kl_weight": 0.1, "kl_reference": "frozen"}}
TWO = [{"cpus": 4}, {"cpus": 4}]


def placed(
    pool: list[dict[str, Any]], *, more: dict[str, Any] | None = None, **placement: Any
) -> TrainConfig:
    about = {"algo": "grpo", "rollout": {"engines": 2, "workers": 2}, **(more or {})}
    return TrainConfig.model_validate({**about, "placement": {"pool": pool, **placement}})


def where(config: TrainConfig) -> dict[str, int]:
    return {process.name: process.bundle for process in processes(config)}


def test_without_a_pool_nobody_has_a_place():
    config = TrainConfig()
    assert processes(config) == []
    check_placement(config, ROLES)
    assert placement_lines(config, ROLES) == []


@pytest.mark.parametrize(
    ("layout", "samplers"), [("colocated", [0, 0]), ("disaggregated", [1, 1]), ("overlapping", [0, 1])]
)
def test_a_layout_says_where_samplers_are(layout, samplers):
    config = placed(TWO, layout=layout)
    found = where(config)
    assert found["learner"] == 0
    assert [found["sampler 1"], found["sampler 2"]] == samplers
    assert [found["environments 1"], found["environments 2"]] == [1, 1]
    check_placement(config, ROLES)


def test_roles_go_where_they_are_told():
    config = placed(
        [{"cpus": 3}, {"cpus": 2}, {"cpus": 3}],
        more={**KL, "rollout": {"engines": 3, "workers": 2}, "reward": {"routes": [{"worker": "rule"}]}},
        layout="overlapping",
        learner=1,
        sampler=[1, 2],
        environments=[0],
        reward=[0],
        reference=[2],
    )
    found = where(config)
    assert [found[f"sampler {n}"] for n in (1, 2, 3)] == [1, 2, 1]
    assert (found["learner"], found["environments 2"], found["reward"], found["reference"]) == (1, 0, 0, 2)


@pytest.mark.parametrize(
    ("pool", "placement", "said"),
    [
        ([], {"learner": 1}, "placement.learner=1 would do nothing without placement.pool"),
        ([], {"layout": "overlapping"}, "would do nothing without placement.pool"),
        (TWO, {"sampler": [2]}, "placement.sampler names bundle 2, and placement.pool has 2"),
        (TWO, {"reward": [0, 1]}, "expected one bundle"),
        ([{"cpus": 9}], {"layout": "disaggregated"}, "needs a bundle beside the learner's"),
        (TWO, {"sampler": [1]}, "beside a learner in bundle 0 are disaggregated"),
        (TWO, {"layout": "disaggregated", "sampler": [0, 1]}, "are overlapping"),
        (TWO, {"layout": "overlapping", "sampler": [0]}, "are colocated"),
        ([{"cpus": 0}], {}, "greater than 0"),
    ],
)
def test_a_section_that_contradicts_itself_is_refused(pool, placement, said):
    with pytest.raises(ValidationError, match=said):
        placed(pool, **placement)


@pytest.mark.parametrize(
    ("pool", "placement", "said"),
    [
        (
            [{"cpus": 4}],
            {},
            r"bundle 0 .* has 4 processors for 5 processes, .*: learner, sampler 1, sampler 2, env",
        ),
        (
            [*TWO, {"cpus": 1}],
            {"environments": [1]},
            "bundle 2 of placement.pool would be reserved for nothing",
        ),
        (TWO, {"reference": [1]}, "'grpo' as configured keeps no frozen reference"),
        (TWO, {"reward": [1]}, "reward.routes names no worker"),
        (
            [{"cpus": 4, "gpus": 2}, {"cpus": 4}],
            {},
            r"bundle 0 .* has 2 GPUs for processes that want 3: learner \(1\), sampler 1 \(1\), sampler 2 \(1\)",
        ),
        (
            [{"cpus": 4}, {"cpus": 4, "memory_gb": 19}],
            {"layout": "disaggregated"},
            "bundle 1 .* has 19 GB, and 20.0 GB are expected to be taken of it by sampler 1, sampler 2, env",
        ),
        (
            [{"cpus": 4, "gpus": 1, "memory_gb": 31}, {"cpus": 4}],
            {},
            "has 31 GB on each GPU, and 32.0 GB are",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(pool, placement, said):
    config = placed(pool, **placement)
    with pytest.raises(ConfigError, match=said):
        check_placement(config, [role for role in ROLES if role.name != "reference"])


def test_who_shares_a_device_takes_turns_and_who_has_one_does_not():
    shared = placed([{"cpus": 4, "gpus": 1, "memory_gb": 34}, {"cpus": 4}], more=KL)
    check_placement(shared, ROLES)  # max(20 + 2 * 1, 12 + 2 * 10) + the reference's 2
    gpus = {process.name: process.gpus for process in processes(shared)}
    assert gpus == {
        "learner": pytest.approx(1 / 3),
        "sampler 1": pytest.approx(1 / 3),
        "sampler 2": pytest.approx(1 / 3),
        "environments 1": 0,
        "environments 2": 0,
    }
    apart = placed([{"cpus": 4, "gpus": 3, "memory_gb": 20}, {"cpus": 4}])
    check_placement(apart, [role for role in ROLES if role.name != "reference"])
    assert [process.gpus for process in processes(apart)][:3] == [1, 1, 1]


def test_ranks_have_a_device_each_and_are_counted_where_there_is_none():
    more = {"model": "hf", "engine_options": {"ranks": 4}}
    ranks = [Role("learner", 4, "cuda", 20 * GB, {}, 12 * GB), *ROLES[2:]]
    config = placed([{"cpus": 1, "gpus": 4, "memory_gb": 20}, {"cpus": 4}], more=more, layout="disaggregated")
    check_placement(config, ranks)
    assert processes(config)[0].gpus == 4
    config = placed([{"cpus": 1, "memory_gb": 83}, {"cpus": 4}], more=more, layout="disaggregated")
    with pytest.raises(ConfigError, match=r"bundle 0 .* has 83 GB, and 84\.0 GB"):  # and the store
        check_placement(config, ranks)


def test_the_map_says_what_is_where():
    pool = [{"cpus": 2, "gpus": 1, "memory_gb": 40}, {"cpus": 3}]
    config = placed(pool, more={"algo": "ppo"}, layout="overlapping")
    head, first, second = placement_lines(config, [role for role in ROLES if role.name != "reference"])
    assert head.split() == ["bundle", "cpus", "gpus", "memory", "expected", "holds"]
    assert first.split(maxsplit=7)[:7] == ["0", "2", "1", "40.00", "GB", "22.00", "GB"]
    assert first.endswith("learner + critic (0.5 GPU), sampler 1 (0.5 GPU)")
    assert second.endswith("sampler 2, environments 1, environments 2")
