"""The learner of `rollout.mode=stream`: what is too old at its version, and steps that are not those of the plans."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from algo_cases import SPECS
from algo_reference import tables
from family_reference import family_group
from local_fleet import config_of

from agent_runtime.store import encode
from agent_runtime.types import VersionTokens
from ale.replay.retraining import StepAgain
from ale.replay.tokens import accounts
from trainer.data.ledger import TOO_OLD, slug
from trainer.processes.learner import Learner

LAG = 2
NEWEST = 6
OLD = "tokens/masked/too_old"


def streaming(algo="grpo", *, mode="stream", version=NEWEST, **settings):
    """Return a learner at a version; `mode` is not validated, and another than `stream` bounds nothing."""
    config = config_of(algo=algo, anchors={"inject": 0}, **settings)
    rollout = config.rollout.model_copy(update={"mode": mode, "staleness": LAG})
    made = Learner(config.model_copy(update={"rollout": rollout}))
    made.ready()
    for each in range(version + 1):
        made.publish(each)
    return made


def over(turn, versions):
    """Return the turn with about as many tokens of each version, in order."""
    parts = [len(part) for part in np.array_split(turn.completion_ids, len(versions)) if len(part)]
    spans = (
        tuple(VersionTokens(v, n) for v, n in zip(versions[-len(parts) :], parts, strict=True))
        if parts
        else ()
    )
    return replace(turn, policy_version=spans if len(spans) > 1 else versions[-1])


def rollouts(*versions, step=1):
    group = family_group(tables()[0], experts=False)
    return [
        replace(t, policy_step=step, turns=tuple(over(turn, versions) for turn in t.turns)) for t in group
    ]


def old_tokens(group, oldest=NEWEST - LAG):
    return sum(int((turn.versions < oldest).sum()) for t in group for turn in t.turns)


def closed(metrics):
    fates = ("tokens/trained", "tokens/imitated", "tokens/masked/", "tokens/dropped/")
    return sum(v for name, v in metrics.items() if name.startswith(fates)) == metrics["tokens/total"]


@pytest.mark.parametrize("minibatches", [1, 2])
@pytest.mark.parametrize("algo", sorted(set(SPECS) - {"bc"}))
def test_every_algorithm_takes_a_step_on_what_is_young_enough(algo, minibatches):
    one = streaming(algo, optim={"minibatches": minibatches})
    group = rollouts(3, 4, 6)
    metrics = one.update([encode(t) for t in group], [], lr=1e-3, step=NEWEST + 1)
    assert np.isfinite(list(metrics.values())).all()
    assert closed(metrics)
    assert 0 < metrics[OLD] <= old_tokens(group)
    assert metrics["lag/max"] <= LAG
    assert metrics["tokens/trained"] > 0
    assert metrics["grad_norm"] > 0


def test_lag_is_told_token_by_token_with_the_share_that_was_too_old():
    group = [t for t in rollouts(3, 4, 6) if t.failure is None]
    metrics = streaming("reinforce", algo_options={"kl_weight": 0.1}).update(
        [encode(t) for t in group], [], lr=1e-3, step=NEWEST + 1
    )
    versions = np.concatenate([turn.versions for t in group for turn in t.turns])
    assert metrics[OLD] == (versions == 3).sum() > 0
    assert metrics["lag/too_old_share"] == pytest.approx((versions == 3).mean())
    spread = {name: value for name, value in metrics.items() if name.startswith("lag/tokens/")}
    assert spread == {"lag/tokens/0": (versions == 6).sum(), "lag/tokens/2": (versions == 4).sum()}
    assert metrics["lag/mean"] == pytest.approx((NEWEST - versions[versions > 3]).mean())


def test_a_run_whose_rollouts_cannot_lag_says_nothing_of_it():
    config = config_of(anchors={"inject": 0})
    one = Learner(config)
    one.ready()
    metrics = one.update([encode(t) for t in rollouts(0)], [], lr=1e-3)
    assert {name for name in metrics if name.startswith("lag/")} == {"lag/mean", "lag/max"}


@pytest.mark.parametrize("mode", ["sync", "pipeline"])
def test_other_modes_learn_what_their_plans_sampled_however_old(mode):
    one = streaming(mode=mode)
    metrics = one.update([encode(t) for t in rollouts(0, 6)], [], lr=1e-3, step=NEWEST + 1)
    assert OLD not in metrics
    assert metrics["lag/max"] == NEWEST


def test_a_batch_of_which_all_is_too_old_is_no_update():
    one = streaming()
    before = {name: value.copy() for name, value in one.weights().items()}
    metrics = one.update([encode(t) for t in rollouts(1)], [], lr=1e-1, step=NEWEST + 1)
    assert metrics["updates"] == metrics["tokens/trained"] == 0
    assert "lag/mean" not in metrics
    assert metrics["lag/too_old_share"] > 0
    assert all(np.array_equal(value, before[name]) for name, value in one.weights().items())


def test_what_is_too_old_by_the_first_versions_is_nothing():
    one = streaming(version=1)
    metrics = one.update([encode(t) for t in rollouts(0)], [], lr=1e-3, step=2)
    assert OLD not in metrics
    assert metrics["lag/max"] == 1


def test_earlier_successes_have_a_bound_of_their_own():
    """Learned in step 7 at lag 0, in step 12 at lag 5: `reuse.max_lag` lets them, `rollout.staleness` is not asked."""
    one = streaming(reuse={"trajectories": 9, "max_lag": 5})
    one.update([encode(t) for t in rollouts(NEWEST)], [], lr=1e-3, step=NEWEST + 1)
    for version in range(NEWEST + 1, NEWEST + 6):
        one.publish(version)
    own = rollouts(NEWEST)
    metrics = one.update([encode(t) for t in own], [], lr=1e-3, step=NEWEST + 6)
    assert metrics["tokens/reused"] > 0
    assert metrics["lag/max"] == 5
    assert metrics["lag/tokens/5"] <= metrics["tokens/reused"]
    assert metrics["tokens/trained"] <= metrics["tokens/reused"]
    assert 0 < metrics[OLD] <= old_tokens(own, NEWEST + 3)
    assert closed(metrics)


@pytest.mark.parametrize("algo", ["grpo", "ipa", "ppo"])
def test_a_prepared_step_accounts_for_every_token_as_its_ledger_does(algo):
    given = [encode(t) for t in rollouts(3, 4, 6)]
    metrics = streaming(algo).update(given, [], lr=1e-3, step=NEWEST + 1)
    again = streaming(algo)
    prepared = again.prepare(given, [], step=NEWEST + 1)
    every = list(accounts(StepAgain(NEWEST + 1, 0, 1e-3, again, prepared, {})))
    found = Counter(fate for account in every for fate in account.fates)
    assert found[f"masked: {TOO_OLD}"] == metrics[OLD] > 0
    assert {f"tokens/{slug(fate)}": n for fate, n in found.items()} == {
        name: n
        for name, n in metrics.items()
        if name.startswith(("tokens/trained", "tokens/masked/", "tokens/dropped/")) and n
    }
    assert all(logprob < 0 for account in every for logprob in account.learner_logprobs)
