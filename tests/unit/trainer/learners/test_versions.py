"""The weights kept for pi_old: which, for whom, across a restart; and what the learner does with them, in this process."""

from __future__ import annotations

import errno
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from algo_reference import CONTEXT, tables, trajectory

from agent_runtime.store import encode
from rock_env.errors import InvalidArgument
from trainer.algo.base import Credit
from trainer.config import OptimOptions, TrainConfig
from trainer.data.build import build_batch
from trainer.learners.versions import VERSION_GONE, Versions
from trainer.processes.learner import Learner

MU, _, _ = tables()
MODES = ["snapshots", "paper"]


def sampled(name, versions, *, lengths=None, reward=1.0, **more):
    """Return a rollout whose turns are of these policy versions."""
    made = trajectory(name, lengths or [2] * len(versions), reward, ids=count(CONTEXT + 1), mu=MU, **more)
    turns = tuple(replace(t, policy_version=v) for t, v in zip(made.turns, versions, strict=True))
    return replace(made, turns=turns)


def credit_of(one, *, chunk_K=None, masked=None, advantage_K=None):
    ones = np.ones(len(one.turns)) if advantage_K is None else np.array(advantage_K, float)
    return Credit(ones, True, np.zeros_like(ones), chunk_K=chunk_K, masked=masked or {})


def kept(keep, versions):
    made = Versions(keep)
    for version in versions:
        made.add(version, {"w": np.full((1, 2), version, np.float32)})
    return made


def asked(versions, *, of=range(12)):
    """Return which weights answer for a turn of each version in `of`; NaN where none does."""
    one = sampled("a", list(of), lengths=[1] * len(of))
    batch, _ = build_batch([one], [credit_of(one)], token_budget=1)

    def ask(part, weights):
        return torch.where(part.loss_mask_BT, float(weights["w"][0, 0]), 0.0)

    found_BT = versions.logprobs(batch, ask)
    return None if found_BT is None else found_BT[batch.loss_mask_BT].tolist()


def learner(behaviour, *, minibatches=1, kept=5, **options):
    more = {"snapshots_kept": kept} if behaviour != "stored" else {}
    made = Learner(
        TrainConfig(
            algo="ipa",
            algo_options={"behaviour": behaviour, "reward_fail": -1, "neg_weight": 1, **more, **options},
            engine_options={"layers": 1, "width": 8, "heads": 1},
            optim=OptimOptions(minibatches=minibatches),
        )
    )
    made.ready()
    return made


def moved_on(behaviour, versions, **options):
    """Return a learner that published these versions, an update between each and the next."""
    made = learner(behaviour, **options)
    for version in versions:
        made.publish(version)
        if version != versions[-1]:
            made.update([encode(t) for t in group(version, version)], [], lr=1e-2)
    return made


def group(*versions):
    return [sampled("won", versions), sampled("lost", versions, reward=-1.0)]


def test_each_turn_is_asked_of_the_weights_that_sampled_it():
    assert asked(kept(3, [0, 1, 2]), of=[2, 0, 0, 1]) == [2, 0, 0, 1]


def test_the_newest_versions_stay_and_what_the_others_sampled_has_no_pi_old():
    np.testing.assert_array_equal(asked(kept(2, [3, 5, 4]), of=[3, 4, 5]), [np.nan, 4, 5])


def test_nothing_is_kept_for_an_algorithm_that_needs_nothing():
    none = kept(0, [0, 1])
    one = sampled("a", [7])
    assert asked(none) is None
    assert none.without_gone([one], [credit_of(one)])[0].advantage_K.tolist() == [1]


def test_what_is_kept_does_not_follow_the_engine():
    """An engine's host weights are views of its parameters, which the next update changes."""
    versions, weights = Versions(1), {"w": np.ones((1, 2), np.float32)}
    versions.add(1, weights)
    weights["w"] += 1
    assert asked(versions, of=[1]) == [1]


def test_a_chunk_with_a_turn_whose_version_is_gone_weighs_nothing():
    one = sampled("a", [1, 2, 2, 1, 2], lengths=[1, 1, 1, 0, 1])
    versions = kept(1, [2])
    (alone,) = versions.without_gone([one], [credit_of(one)])
    assert alone.advantage_K.tolist() == [0, 1, 1, 1, 1]  # the fourth turn is empty: it has no ratio to lose
    assert alone.masked == {0: VERSION_GONE}
    pairs = credit_of(
        one, chunk_K=np.array([0, 0, 1, 1, 2]), masked={1: "faulty turn"}, advantage_K=[1, 0, 1, 1, 1]
    )
    (merged,) = versions.without_gone([one], [pairs])
    assert merged.advantage_K.tolist() == [0, 0, 1, 1, 1]
    assert merged.masked == {0: VERSION_GONE, 1: "faulty turn"}


def test_experts_and_dropped_rollouts_keep_their_credit():
    expert = trajectory("e", [2], 1.0, ids=count(CONTEXT + 1), expert=True)
    imitated = Credit(np.zeros(1), True, np.ones(1))
    dropped = replace(credit_of(sampled("a", [0])), dropped="failed")
    assert kept(1, [9]).without_gone([expert, sampled("a", [0])], [imitated, dropped]) == [imitated, dropped]


def test_the_versions_outlive_a_restart(tmp_path):
    kept(3, [7, 8, 9]).save(tmp_path)
    again = Versions(2)
    again.load(tmp_path)
    again.add(10, {"w": np.full((1, 2), 10, np.float32)})
    np.testing.assert_array_equal(asked(again, of=[8, 9, 10]), [np.nan, 9, 10])
    none = Versions(0)
    none.load(tmp_path)
    assert asked(none) is None


def test_a_damaged_version_is_one_clear_error(tmp_path):
    kept(1, [7]).save(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:10])
    with pytest.raises(
        InvalidArgument, match=rf"cannot read the policy version .*Remove the folder {tmp_path.name}"
    ):
        Versions(1).load(tmp_path)


def test_a_refused_write_is_the_systems_error(tmp_path):
    with pytest.raises(OSError, match="No such file") as caught:
        kept(1, [7]).save(tmp_path / "gone")
    assert caught.value.errno == errno.ENOENT


@pytest.mark.parametrize("behaviour", MODES)
def test_with_samples_of_the_current_version_nothing_is_stale(behaviour):
    """Bit for bit: pi_old comes out of the same weights by the same pass as pi_prox."""
    found = moved_on(behaviour, [0, 1], minibatches=2).update([encode(t) for t in group(1, 1)], [], lr=1e-2)
    for unit in ("token", "chunk", "sequence"):
        assert found[f"staleness/{unit}_mean"] == found[f"staleness/{unit}_max"] == 1
        assert found[f"engines/{unit}_mean"] == pytest.approx(found[f"mismatch/{unit}_mean"], rel=1e-12)


def test_stale_samples_are_measured_against_the_weights_that_sampled_them():
    """The version's own learner, kept as it was, says what pi_old is; the one that moved on agrees."""
    stale, rollouts = moved_on("paper", [0, 1, 2]), group(0, 1)
    batch, _ = build_batch(rollouts, [credit_of(t) for t in rollouts], token_budget=1)
    wanted_BT = torch.zeros(batch.tokens_BT.shape)
    for version in (0, 1):
        then = moved_on("paper", list(range(version + 1)))._engine.logprobs(batch)
        wanted_BT = torch.where(batch.policy_version_BT == version, then, wanted_BT)
    mask_BT = batch.loss_mask_BT
    now_BT = stale._engine.logprobs(batch)
    found = stale.update([encode(t) for t in rollouts], [], lr=1e-2)
    staleness_N = (now_BT - wanted_BT)[mask_BT].double().exp()
    engines_N = (wanted_BT - batch.rollout_logprobs_BT)[mask_BT].double().exp()
    assert (staleness_N - 1).abs().min() > 1e-4
    assert found["staleness/token_mean"] == pytest.approx(float(staleness_N.mean()), rel=1e-6)
    assert found["staleness/token_max"] == pytest.approx(float(staleness_N.max()), rel=1e-6)
    assert found["engines/token_mean"] == pytest.approx(float(engines_N.mean()), rel=1e-6)


@pytest.mark.parametrize("behaviour", MODES)
def test_what_a_gone_version_sampled_is_left_out_and_the_rest_trains(behaviour):
    options = {"kept": 1, "mask_high": float("inf")}
    one = moved_on(behaviour, [0, 1], **options)
    found = one.update([encode(t) for t in group(0, 1)], [], lr=1e-2)
    assert found["tokens/masked/version_gone"] == found["tokens/trained"] == 4
    assert np.isfinite(list(found.values())).all()
    assert found["grad_norm"] > 0
    before = {name: value.copy() for name, value in one.weights().items()}
    nothing = one.update([encode(t) for t in group(0, 0)], [], lr=1e-2)
    assert nothing["tokens/masked/version_gone"] == 8
    assert nothing["updates"] == 0
    assert not any(name.startswith(("staleness/", "engines/")) for name in nothing)
    assert all(np.array_equal(value, before[name]) for name, value in one.weights().items())


def test_a_resumed_learner_computes_what_the_uninterrupted_one_does(tmp_path):
    one = moved_on("snapshots", [0, 1, 2], minibatches=2)
    one.save(tmp_path)
    again = learner("snapshots", minibatches=2)
    again.load(tmp_path)
    again.publish(2)
    step = [encode(t) for t in group(0, 1)]
    assert again.update(step, [], lr=1e-2) == one.update(step, [], lr=1e-2)
    assert all(np.array_equal(value, again.weights()[name]) for name, value in one.weights().items())


def test_stored_keeps_no_weights(tmp_path):
    one = moved_on("stored", [0, 1])
    found = one.update([encode(t) for t in group(0, 1)], [], lr=1e-2)
    assert not any(name.startswith(("staleness/", "engines/")) for name in found)
    one.save(tmp_path)
    assert list(tmp_path.glob("version-*")) == []
