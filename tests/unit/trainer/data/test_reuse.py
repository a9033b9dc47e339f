"""Successes of earlier steps: what is kept, what joins a step, when they leave, and that every token is accounted for."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from itertools import count

import numpy as np
import pytest
from algo_reference import trajectory
from hypothesis import given
from hypothesis import strategies as st
from local_fleet import config_of, local_run

from agent_runtime.store import decode, encode
from trainer.algo.base import Credit
from trainer.config import ReuseOptions
from trainer.data.build import build_batch
from trainer.data.reuse import ReuseBuffer
from trainer.errors import CheckpointError
from trainer.processes.learner import Learner


def sampled(name: str, version: int, *, won: bool = True):
    """Return a rollout of two turns that weights `version` sampled, and a credit that no algorithm would give again."""
    mu = np.linspace(-2, -1, 32)
    one = trajectory(name, [2, 1], float(won), ids=count(10), mu=mu, group=name)
    turns = tuple(replace(turn, policy_version=version) for turn in one.turns)
    advantage_K = np.array([0.25, -1.5]) if won else np.array([-1.0, -1.0])
    return replace(one, turns=turns, policy_step=version + 1), Credit(advantage_K, won, np.zeros(2))


def kept(buffer: ReuseBuffer, *pairs) -> ReuseBuffer:
    buffer.keep([trajectory for trajectory, _ in pairs], [credit for _, credit in pairs])
    return buffer


def test_only_successes_with_credit_are_kept_each_with_its_tokens_probabilities_and_credit():
    won, credit = sampled("won", 3)
    dropped = sampled("dropped", 3)[0], replace(credit, dropped="any")
    idle = sampled("idle", 3)[0], replace(credit, advantage_K=np.zeros(2))
    buffer = kept(
        ReuseBuffer(ReuseOptions(trajectories=9)), (won, credit), sampled("lost", 3, won=False), dropped, idle
    )
    drawn = buffer.draw(4, seed=0)
    (found,), (given_credit,) = drawn.trajectories, drawn.credits
    assert encode(found) == encode(won)
    assert given_credit.advantage_K.tolist() == [0.25, -1.5]
    assert (given_credit.positive, given_credit.dropped, given_credit.chunk_K) == (True, "", None)
    assert not given_credit.imitation_K.any()


def test_no_field_of_a_credit_is_lost():
    won, credit = sampled("won", 3)
    chunk_K, value_K, return_K = np.array([0, 1]), np.array([0.5, 0.25]), np.array([1.0, 2.0])
    whole = replace(
        credit, chunk_K=chunk_K, masked={1: "any"}, every_token=True, value_K=value_K, return_K=return_K
    )
    unset = {f.name for f in fields(Credit) if not np.any(getattr(whole, f.name))}
    assert unset == {"dropped", "imitation_K"}, "a new field needs a value here, and a place in the buffer"
    (found,) = kept(ReuseBuffer(ReuseOptions(trajectories=1)), (won, whole)).draw(3, 0).credits
    for each in fields(Credit):
        assert np.array_equal(getattr(found, each.name), getattr(whole, each.name)), each.name


def test_nothing_is_kept_unless_asked():
    assert len(kept(ReuseBuffer(ReuseOptions()), sampled("won", 1))) == 0


@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 8), st.integers(0, 99))
def test_no_sample_beyond_the_lag_bound_is_given_to_learn_from_and_each_leaves_once(
    lag, count, capacity, seed
):
    buffer = ReuseBuffer(ReuseOptions(trajectories=count, max_lag=lag, capacity=capacity))
    held = 0
    for version in range(12):
        drawn = buffer.draw(version, seed + version)
        assert all(version - one.turns[0].policy_version <= lag for one in drawn.trajectories)
        names = [one.id for one in drawn.trajectories]
        assert len(names) == len(set(names)) == len(drawn.credits) == min(count, len(buffer))
        assert drawn.too_old == held - len(buffer)
        kept(buffer, sampled(f"{version}a", version), sampled(f"{version}b", version))
        held = len(buffer)
        assert held == min(capacity, 2 * (min(version, lag) + 1))


def test_the_oldest_token_of_a_success_counts():
    mixed, credit = sampled("mixed", 5)
    mixed = replace(mixed, turns=(replace(mixed.turns[0], policy_version=2), mixed.turns[1]))
    buffer = kept(ReuseBuffer(ReuseOptions(trajectories=1, max_lag=2)), (mixed, credit))
    assert [t.id for t in buffer.draw(4, 0).trajectories] == ["mixed"]
    gone = buffer.draw(5, 0)
    assert (gone.trajectories, gone.too_old, len(buffer)) == ([], 1, 0)


def test_beyond_the_capacity_the_oldest_leave():
    buffer = ReuseBuffer(ReuseOptions(trajectories=2, capacity=2))
    for version in range(4):
        kept(buffer, sampled(str(version), version))
    assert {t.id for t in buffer.draw(4, 0).trajectories} == {"2", "3"}


def test_stored_log_probabilities_enter_the_batch_untouched():
    won, credit = sampled("won", 0)
    buffer = kept(ReuseBuffer(ReuseOptions(trajectories=1)), (won, credit))
    drawn = buffer.draw(3, 0)
    batch, _ = build_batch(drawn.trajectories, drawn.credits, token_budget=8)
    stored = np.concatenate([turn.logprobs for turn in won.turns])
    assert np.array_equal(batch.rollout_logprobs_BT[batch.loss_mask_BT].numpy(), stored)
    assert set(batch.policy_version_BT[batch.loss_mask_BT].tolist()) == {0}


def test_what_is_saved_is_drawn_as_if_nothing_had_happened(tmp_path):
    options = ReuseOptions(trajectories=2)
    won, credit = sampled("chunked", 2)
    chunked = replace(credit, chunk_K=np.array([0, 0]), masked={0: "faulty turn"}, every_token=True)
    buffer = kept(ReuseBuffer(options), (won, chunked), *(sampled(str(n), n) for n in range(4)))
    buffer.save(tmp_path)
    twin = ReuseBuffer(options)
    twin.load(tmp_path)
    for version in range(3, 9):
        mine, theirs = buffer.draw(version, version), twin.draw(version, version)
        assert [encode(t) for t in mine.trajectories] == [encode(t) for t in theirs.trajectories]
        assert [str(c) for c in mine.credits] == [str(c) for c in theirs.credits]
        assert mine.too_old == theirs.too_old


def test_a_damaged_file_is_one_clear_error_and_none_is_an_empty_buffer(tmp_path):
    buffer = kept(ReuseBuffer(ReuseOptions(trajectories=1)), sampled("won", 1))
    (tmp_path / "reuse.msgpack").write_bytes(b"\xc1")
    with pytest.raises(CheckpointError, match=r"cannot read .*reuse\.msgpack"):
        buffer.load(tmp_path)
    (tmp_path / "reuse.msgpack").unlink()
    buffer.load(tmp_path)
    assert len(buffer) == 0


def won_by_the_first(t):
    return replace(t, reward=1.0, passed=True) if t.failure is None and t.index == 0 else t


def test_a_run_accounts_for_what_it_learns_again(tmp_path):
    """Step 2 learns step 1's successes again, step 3 cannot: the ledger names them and still adds up."""
    config = config_of(steps=3, reuse={"trajectories": 2, "max_lag": 1}, anchors={"inject": 0})
    local_run(tmp_path, config, change=won_by_the_first)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    first, second, third = (line for line in lines if line["kind"] == "train")
    assert first["tokens/reused"] == 0
    assert second["tokens/reused"] > 0
    assert "tokens/dropped/too_old" not in second
    assert third["trajectories/dropped/too_old"] >= 4
    for line in (first, second, third):
        fates = ("tokens/trained", "tokens/imitated", "tokens/masked/", "tokens/dropped/")
        assert sum(v for name, v in line.items() if name.startswith(fates)) == line["tokens/total"]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["ledger"]["total"] - summary["ledger"]["reused"] == summary["tokens"]


def a_step(number: int) -> list[bytes]:
    """Return a step's group: two successes and two failures, sampled by the weights of the step before."""
    pairs = [sampled(f"{number}-{n}", number - 1, won=n % 2 == 0) for n in range(4)]
    return [encode(replace(t, group_id=str(number))) for t, _ in pairs]


def learner_of(**options: int) -> Learner:
    learner = Learner(config_of(reuse=options, anchors={"inject": 0}))
    learner.ready()
    return learner


def same_weights(one: Learner, other: Learner) -> bool:
    theirs = other.weights()
    return all(np.array_equal(values, theirs[name]) for name, values in one.weights().items())


def test_what_is_too_old_is_counted_and_weighs_nothing():
    buffered, plain = learner_of(trajectories=2, max_lag=1), learner_of()
    for learner in (buffered, plain):
        learner.update(a_step(1), [], lr=1e-3)
    metrics, without = (learner.update(a_step(9), [], lr=1e-3, step=9) for learner in (buffered, plain))
    assert metrics["trajectories/dropped/too_old"] == 2
    assert metrics["tokens/reused"] == 0
    assert metrics["loss"] == without["loss"]
    assert same_weights(buffered, plain)


def test_a_learner_restored_between_updates_learns_bit_for_bit_alike(tmp_path):
    whole, cut, resumed = (learner_of(trajectories=2) for _ in range(3))
    for learner in (whole, cut):
        learner.update(a_step(1), [], lr=1e-3)
    cut.save(tmp_path)
    resumed.load(tmp_path)
    metrics = [learner.update(a_step(2), [], lr=1e-3, step=2) for learner in (whole, resumed)]
    assert metrics[0] == metrics[1]
    assert metrics[0]["tokens/reused"] == 2 * decode(a_step(1)[0]).sampled_tokens
    assert same_weights(whole, resumed)
    plain = learner_of()
    for step in (1, 2):
        plain.update(a_step(step), [], lr=1e-3, step=step)
    assert not same_weights(whole, plain), "what is learned again moves the weights"
