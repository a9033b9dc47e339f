"""The learner with every algorithm: what it prepares for a loss, on the real engine in this process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from algo_cases import SPECS
from algo_reference import learners, tables
from family_reference import family_group
from pydantic import ValidationError

from agent_runtime.store import encode
from agent_runtime.types import TurnFault, TurnLabel
from trainer.config import FilterOptions, OptimOptions, RolloutOptions, TrainConfig
from trainer.errors import BatchError, ConfigError
from trainer.processes.learner import Learner
from trainer.rollout.filtering import rejection

TINY = {"layers": 1, "width": 8, "heads": 1}


def learner(algo="grpo", *, minibatches=1, labels=("main",), **options):
    made = Learner(
        TrainConfig(
            algo=algo,
            algo_options=options,
            engine_options=TINY,
            optim=OptimOptions(minibatches=minibatches),
            rollout=RolloutOptions(train_labels=labels),
        )
    )
    made.ready()
    return made


def rollouts(keep=lambda t: True):
    return [encode(t) for t in family_group(tables()[0], experts=False) if keep(t)]


def moved(before, after):
    return any(not np.array_equal(before[name], after[name]) for name in before)


def copied(weights):
    return {name: value.copy() for name, value in weights.items()}


@pytest.mark.parametrize("minibatches", [1, 2])
@pytest.mark.parametrize("algo", sorted(set(SPECS) - {"bc"}))
def test_every_algorithm_takes_a_step(algo, minibatches):
    one = learner(algo, minibatches=minibatches)
    before = copied(one.weights())
    metrics = one.update(rollouts(), [], lr=1e-3)
    assert np.isfinite(list(metrics.values())).all()
    assert metrics["grad_norm"] > 0
    assert moved(before, one.weights())


def test_credit_across_groups_reaches_the_batch():
    """Half of the groups are StarPO's to drop; without the step's view, every group would train."""
    metrics = learner("starpo", keep_share=0.5).update(rollouts(), [], lr=1e-3)
    assert metrics["tokens/dropped/low-variance_group"] > 0
    assert "tokens/dropped/low-variance_group" not in learner("starpo").update(rollouts(), [], lr=1e-3)


def test_the_frozen_reference_is_the_model_the_run_began_with():
    """Nothing pulls at first; after other updates the divergence does, though no rollout has credit."""
    options = {"kl_weight": 1.0, "kl_estimator": "k2", "kl_reference": "frozen"}
    one = learner(normalize_std=False, **options)
    flat = rollouts(lambda t: t.failure is None and t.reward == 0)
    assert len(flat) == 2
    first = one.update(flat, [], lr=1e-3)
    assert first["kl"] == first["grad_norm"] == 0
    one.update(rollouts(), [], lr=1e-2)
    later = one.update(flat, [], lr=1e-3)
    assert later["kl"] > 0
    assert later["grad_norm"] > 0


def test_rollouts_without_credit_teach_nothing_without_a_divergence():
    flat = rollouts(lambda t: t.failure is None and t.reward == 0)
    metrics = learner().update(flat, [], lr=1e-3)
    assert metrics["tokens/masked/zero_credit"] == sum(
        t.sampled_tokens for t in learners(family_group(tables()[0])) if t.reward == 0
    )
    assert metrics["tokens/trained"] == 0


def test_an_update_whose_tokens_are_all_masked_is_none_in_spite_of_momentum():
    one = learner("ipa", learn_faulty=True)
    assert one.update(rollouts(), [], lr=1e-2)["updates"] == 1
    before = copied(one.weights())
    far = [
        replace(t, turns=tuple(replace(turn, logprobs=turn.logprobs - 30) for turn in t.turns))
        for t in family_group(tables()[0], experts=False)
    ]
    metrics = one.update([encode(t) for t in far], [], lr=1e-2)
    assert metrics["tokens/masked/chunk_mask"] > 0
    assert metrics["tokens/trained"] == metrics["updates"] == 0
    assert not moved(before, one.weights())


def test_calls_that_are_not_main_are_context_and_named_in_the_ledger():
    """The same session twice, its last turn once a side call: nothing of it is learned, and the account still closes."""
    plain = [t for t in family_group(tables()[0], experts=False) if t.failure is None]
    told = [replace(t, turn_labels=(TurnLabel.MAIN,) * (len(t.turns) - 1) + (TurnLabel.SIDE,)) for t in plain]
    aside = sum(len(t.turns[-1].completion_ids) for t in told)
    metrics = learner().update([encode(t) for t in told], [], lr=1e-3)
    assert metrics["tokens/masked/label/side"] == aside > 0
    assert metrics["tokens/total"] == sum(t.sampled_tokens for t in plain)
    assert metrics["tokens/trained"] > 0


@pytest.mark.parametrize("label", ["sub_agent", "summary", "side", "error"])
def test_calls_of_a_label_are_learned_only_where_the_option_names_it(label):
    """All of a step's calls but the first have the label: by default they are context, named by it; by option none is."""
    plain = [t for t in family_group(tables()[0], experts=False) if t.failure is None]
    told = [
        replace(t, turn_labels=(TurnLabel.MAIN, *(TurnLabel(label),) * (len(t.turns) - 1))) for t in plain
    ]
    beside = sum(len(turn.completion_ids) for t in told for turn in t.turns[1:])
    default = learner().update([encode(t) for t in told], [], lr=1e-3)
    named = learner(labels=("main", label)).update([encode(t) for t in told], [], lr=1e-3)
    main = learner().update(
        [encode(replace(t, turn_labels=(TurnLabel.MAIN,) * len(t.turns))) for t in plain], [], lr=1e-3
    )
    assert default[f"tokens/masked/label/{label}"] == beside > 0
    assert f"tokens/masked/label/{label}" not in named
    assert named["tokens/trained"] == main["tokens/trained"] > default["tokens/trained"]
    for metrics in (default, named):
        masked = sum(value for name, value in metrics.items() if name.startswith("tokens/masked/"))
        assert metrics["tokens/trained"] + masked == metrics["tokens/total"]
        assert metrics["tokens/total"] == sum(t.sampled_tokens for t in plain)


def test_a_format_error_that_the_agent_dropped_gets_a_gradient_by_option():
    """Nothing else is in the step, and the answers are malformed, so that the weights move by these calls or not at all."""
    plain = [t for t in family_group(tables()[0], experts=False) if t.failure is None]
    told = [
        encode(
            replace(
                t,
                turn_labels=(TurnLabel.ERROR,) * len(t.turns),
                turn_faults=(TurnFault.ILLEGAL,) * len(t.turns),
            )
        )
        for t in plain
    ]
    for labels in (("main",), ("main", "error")):
        one = learner(labels=labels)
        before = copied(one.weights())
        metrics = one.update(told, [], lr=1e-3)
        learned = "error" in labels
        assert (metrics["tokens/trained"] > 0) is learned
        assert (metrics.get("grad_norm", 0) > 0) is learned
        assert moved(before, one.weights()) is learned


@pytest.mark.parametrize("labels", [("error",), ("main", "superseded"), ("main", "side", "side")])
def test_labels_that_cannot_be_learned_are_refused(labels):
    with pytest.raises(ValidationError, match="train_labels"):
        RolloutOptions(train_labels=labels)


def test_a_divergence_from_the_policy_itself_is_refused():
    """With one update per batch pi_prox is the policy: the term would be 0, and so would be its gradient."""
    with pytest.raises(ConfigError, match=r"kl_reference='prox' has no effect with optim\.minibatches=1"):
        learner(kl_weight=0.1, kl_reference="prox")
    one = learner(minibatches=2, kl_weight=0.1, kl_reference="prox")
    assert one.update(rollouts(), [], lr=1e-3)["kl"] > 0


MAIN, SIDE, FINE, ILLEGAL = TurnLabel.MAIN, TurnLabel.SIDE, TurnFault.NONE, TurnFault.ILLEGAL


@pytest.mark.parametrize(
    ("labels", "faults"),
    [
        ((MAIN, SIDE, MAIN, MAIN), (ILLEGAL, FINE, ILLEGAL, FINE)),
        ((SIDE, SIDE, MAIN, MAIN), (ILLEGAL, ILLEGAL, FINE, FINE)),
    ],
)
def test_what_is_rejected_is_a_matter_of_the_whole_record(labels, faults):
    """The rollout worker sees a session before its side calls are cut out: the learner must come to the same answer."""
    one = learner()
    one._config = one._config.model_copy(update={"filter": FilterOptions(illegal_turns=2)})
    four = next(t for t in family_group(tables()[0], experts=False) if len(t.turns) == 4 and not t.failure)
    session = replace(four, turn_labels=labels, turn_faults=faults)
    others = [replace(t, turn_labels=(MAIN,) * len(t.turns)) for t in learners(family_group(tables()[0]))]
    step = [session, *(t for t in others if t.id != session.id)]
    metrics = one.update([encode(t) for t in step], [], lr=1e-3)
    dropped = metrics.get("trajectories/dropped/repeated_illegal_calls", 0)
    assert dropped == bool(rejection(session, FilterOptions(illegal_turns=2)))


@pytest.mark.parametrize("algo", ["grpo", "topr", "reinforce", "ipa"])
def test_the_mismatch_is_that_of_the_weights_that_the_updates_began_with(algo):
    """How far the updates themselves go is `ratio`'s to say: whether the algorithm asks for pi_prox or not."""
    small, large = (learner(algo, minibatches=2).update(rollouts(), [], lr=lr) for lr in (1e-9, 1e-1))
    assert small["ratio/token_mean"] != pytest.approx(large["ratio/token_mean"], rel=1e-2)
    names = [name for name in small if name.startswith("mismatch/")]
    assert len(names) == 7
    assert {name: small[name] for name in names} == {name: large[name] for name in names}


def test_options_of_sessions_are_refused_for_a_chat_loop():
    config = TrainConfig(engine_options=TINY, rollout=RolloutOptions(branch_credit="split"))
    one = Learner(config)
    one.ready()
    with pytest.raises(BatchError, match="branch_credit='split'"):
        one.update(rollouts(), [], lr=1e-3)
