"""What keeps a policy trying, in the learner: weights that move, what a checkpoint holds of them, and closed ledgers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from algo_cases import SPECS
from algo_reference import tables
from family_reference import family_group
from local_fleet import Listening, LocalFleet, config_of, learn, local_run
from pydantic import ValidationError

from agent_runtime.store import encode
from agent_runtime.types import Trajectory
from ale.replay.retraining import prepare_again, retrain
from ale.replay.tokens import accounts
from ale.toml_text import render
from trainer.config import ExploreOptions, TrainConfig
from trainer.errors import CheckpointError, ConfigError
from trainer.learners.explorer import MOST_COEF, Explorer
from trainer.processes.learner import Learner
from trainer.run import Run

TINY = {"layers": 1, "width": 8, "heads": 1}
ALL = {"entropy_coef": 0.02, "target_entropy": 5.0, "kl_coef": 0.1, "kl_until": 0.8}


def learner(algo: str = "grpo", *, explore: dict[str, object], **settings: object) -> Learner:
    made = Learner(
        TrainConfig.model_validate(
            {"algo": algo, "engine_options": TINY, "steps": 10, "explore": explore, **settings}
        )
    )
    made.ready()
    made.publish(0)
    return made


def rollouts(entropy: float = 1.0, *, flat: bool = False) -> list[Trajectory]:
    group = [
        t
        for t in family_group(tables()[0], experts=False)
        if not flat or (t.failure is None and t.reward == 0)
    ]
    return [
        replace(t, turns=tuple(replace(turn, entropy=entropy) for turn in t.turns), policy_step=1)
        for t in group
    ]


def explorer(**explore: object) -> Explorer:
    one = learner(explore=explore)
    return Explorer(one._config, one._engine, learns=True)


def test_the_coefficient_moves_towards_the_target_entropy():
    held = explorer(target_entropy=2.0)
    assert held.at(1, rollouts(1.0)).entropy_coef == pytest.approx(0.005)
    assert held.at(2, rollouts(0.0)).entropy_coef == pytest.approx(0.015)
    assert held.at(3, rollouts(4.0)).entropy_coef == pytest.approx(0.005)
    assert held.at(4, rollouts(8.0)).entropy_coef == 0
    for step in range(5, 110):
        most = held.at(step, rollouts(0.0)).entropy_coef
    assert most == MOST_COEF


def test_without_a_target_the_coefficient_stays():
    held = explorer(entropy_coef=0.02)
    assert [held.at(step, rollouts(0.0)).entropy_coef for step in (1, 2, 3)] == [0.02] * 3


def test_the_divergence_falls_to_0_and_the_weights_leave():
    one = learner(explore={"kl_coef": 0.4, "kl_until": 0.5})
    held = one._explorer
    assert [held.at(step, rollouts()).kl_coef for step in (1, 2, 6, 9)] == pytest.approx([0.4, 0.32, 0, 0])
    assert held._warm is None


@pytest.mark.parametrize("algo", sorted(set(SPECS) - {"bc"}))
def test_with_all_terms_every_algorithm_trains_every_token_and_its_ledger_closes(algo):
    one = learner(algo, explore={**ALL, "entropy_over": "turns"}, optim={"minibatches": 2, "lr_signal": 1.0})
    for step in (1, 2):
        given = [encode(replace(t, policy_step=step)) for t in rollouts()]
        metrics = one.update(given, [], lr=1e-3, step=step)
        one.publish(step)
    assert np.isfinite(list(metrics.values())).all()
    parts = sum(v for n, v in metrics.items() if n.startswith(("tokens/masked/", "tokens/dropped/")))
    assert metrics["tokens/total"] == metrics["tokens/trained"] + metrics["tokens/imitated"] + parts
    assert not [name for name in metrics if name.startswith("tokens/masked/")]
    assert 0.02 < metrics["explore/entropy_coef"] < 0.2
    assert metrics["explore/kl"] > 0
    assert metrics["explore/entropy"] > 1


def test_flat_groups_learn_under_an_entropy_term_alone():
    flat = [encode(t) for t in rollouts(flat=True)]
    assert learner(explore={}).update(flat, [], lr=1e-3)["updates"] == 0
    metrics = learner(explore={"entropy_coef": 0.1}).update(flat, [], lr=1e-3)
    assert metrics["updates"] == 1
    assert metrics["grad_norm"] > 0


def test_the_rate_falls_with_the_share_of_groups_that_teach():
    step = rollouts()
    groups = len({t.group_id for t in step})
    other = [replace(t, id=f"{t.id}-flat", group_id="flat") for t in rollouts(flat=True)]
    given = [encode(t) for t in [*step, *other]]
    for power, share in ((0.0, 1.0), (1.0, groups / (groups + 1)), (2.0, (groups / (groups + 1)) ** 2)):
        metrics = learner(explore={}, optim={"lr_signal": power}).update(given, [], lr=1e-3)
        assert metrics["lr"] == pytest.approx(1e-3 * share)
        assert metrics.get("lr_share") == (pytest.approx(share) if power else None)
    alone = [encode(t) for t in other]
    assert learner(explore={}, optim={"lr_signal": 1.0}).update(alone, [], lr=1e-3)["lr_share"] == 1


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"explore": {"entropy_coef": 0.1}}, "explore.entropy_coef"),
        ({"explore": {"target_entropy": 0.1}}, "explore.target_entropy"),
        ({"sampling": {"temperature": 1.2}}, "sampling.temperature"),
    ],
)
def test_an_engine_whose_distributions_are_not_seen_refuses(settings, named):
    made = Learner(TrainConfig.model_validate({"env": "swe", "model": "coder", "algo": "grpo", **settings}))
    with pytest.raises(ConfigError, match=named):
        made.ready()


def test_imitation_alone_refuses():
    with pytest.raises(ConfigError, match=r"explore\.kl_coef would do nothing with algo 'bc'"):
        learner("bc", explore={"kl_coef": 0.1})


@pytest.mark.parametrize("dead", [{"entropy_over": "turns"}, {"kl_until": 0.5}])
def test_an_option_without_effect_is_refused(dead):
    with pytest.raises(ValidationError, match="would do nothing"):
        ExploreOptions(**dead)


def test_a_checkpoint_without_the_warm_up_s_weights_is_refused(tmp_path: Path):
    one = learner(explore={"kl_coef": 0.1})
    one.save(tmp_path)
    (tmp_path / "warmup.safetensors").unlink()
    other = learner(explore={"kl_coef": 0.1})
    other.load(tmp_path)
    with pytest.raises(CheckpointError, match=r"warmup\.safetensors"):
        other.update([encode(t) for t in rollouts()], [], lr=1e-3)


# -- whole runs -------------------------------------------------------------------------------------------------------


def held_up(*, steps: int = 4, **changes: object) -> TrainConfig:
    return config_of(
        steps=steps,
        warmup={"epochs": 20, "lr": 1e-2},
        explore={**ALL, "target_entropy": 8.0},
        sampling={"temperature": 1.3},
        optim={"lr_signal": 0.5},
        checkpoint={"every": 2, "keep": 9},
        filter={"dynamic": "on"},
        curriculum={"tasks": "pass_rate"},
        **changes,
    )


def played(folder: Path, config: TrainConfig, *, until: int, resume: bool = False) -> None:
    """Train to a step, with checkpoints as the loop saves them."""
    with Run(config, folder, LocalFleet(config), Listening(), resume=resume) as run:  # type: ignore[arg-type]
        if run.is_new:
            run.record_experts()
            run.warm_up()
            run.save()
        for step in range(run._state.step + 1, until + 1):
            learn(run, step)
            if run.is_checkpoint_due(step):
                run.save()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("held")
    (folder / "config.toml").write_text(render(held_up().model_dump()))
    played(folder, held_up(), until=4)
    return folder


def steps_of(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == "train"]


def test_sampler_and_learner_temper_alike(run: Path):
    for row in steps_of(run):
        assert row["mismatch/token_abs"] < 1e-5
        assert row["entropy/exact"] == 1
        assert row["explore/entropy"] == pytest.approx(row["entropy"], rel=0.1)


def test_untempered_log_probabilities_would_be_told_apart(tmp_path: Path):
    config = held_up(steps=1, guard={"mismatch": 0.0})

    class Cold(LocalFleet):
        def __init__(self, config: TrainConfig, **fleet: object) -> None:
            super().__init__(
                config.model_copy(
                    update={"sampling": config.sampling.model_copy(update={"temperature": 1.0})}
                )
            )

    local_run(tmp_path, config, kind=Cold)
    assert steps_of(tmp_path)[0]["mismatch/token_abs"] > 1e-2


@pytest.mark.parametrize("step", [2, 4])
def test_steps_come_out_again_to_the_byte(run: Path, step: int):
    found = retrain(run, step)
    assert found.equal, (found.metrics_apart, found.tensors_apart)
    assert found.metrics["explore/entropy_coef"] > 0
    assert (found.tensors_compared or 0) > 20


def test_every_token_of_a_step_is_accounted_for_again(run: Path):
    told = [fate for account in accounts(prepare_again(run, 3)) for fate in account.fates]
    assert told.count("trained") == steps_of(run)[2]["tokens/trained"]


def test_a_resumed_run_goes_on_bit_for_bit(run: Path, tmp_path: Path):
    played(tmp_path, held_up(), until=2)
    played(tmp_path, held_up(), until=4, resume=True)
    names = ("explore/entropy_coef", "explore/kl", "loss", "grad_norm")
    whole, resumed = ([[row[n] for n in names] for row in steps_of(each)] for each in (run, tmp_path))
    assert resumed == whole
    assert len({coef for coef, *_ in whole}) == 4
