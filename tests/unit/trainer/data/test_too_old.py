"""Tokens of versions beyond the lag bound: out of every ratio, mean and loss, in every divisor, once in the ledger."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from algo_cases import CASES
from algo_reference import (
    BUDGET,
    CONTEXT,
    TABLE,
    VALUES,
    batch_for,
    credited,
    differentiated,
    ragged_group,
    tables,
    trajectory,
)
from family_reference import family_group

from agent_runtime.types import VersionTokens
from trainer.algo.base import Credit
from trainer.algo.terms.chunks import chunks_of
from trainer.algo.terms.critic import critic_loss
from trainer.algo.terms.explore import entropy_mean
from trainer.algo.terms.monitors import Monitors
from trainer.data.build import branches_of_rows, build_batch
from trainer.data.ledger import TOO_OLD
from trainer.data.reuse import ReuseBuffer, ReuseOptions
from trainer.learners.versions import VERSION_GONE, Versions

MU, PROX, PI = tables()
OLDEST = 3


def over_versions(turn, rng):
    """Return the turn with its tokens over rising versions of 0 to 6."""
    drawn = np.sort(rng.integers(0, 7, len(turn.completion_ids)))
    found = zip(*np.unique(drawn, return_counts=True), strict=True)
    spans = tuple(VersionTokens(int(version), int(tokens)) for version, tokens in found)
    return replace(turn, policy_version=spans if len(spans) > 1 else int(drawn[0]) if len(drawn) else 0)


def aged(group, seed=0):
    rng = np.random.default_rng(seed)
    return [
        t if t.is_expert else replace(t, turns=tuple(over_versions(turn, rng) for turn in t.turns))
        for t in group
    ]


def bounded(credits, oldest=OLDEST):
    return [replace(credit, oldest=oldest) for credit in credits]


def told(turn):
    """Return the turn as if somebody else had said its old tokens: they are context, as is an observation."""
    old = int(np.count_nonzero(turn.versions < OLDEST))
    return replace(
        turn,
        context_ids=np.concatenate([turn.context_ids, turn.completion_ids[:old]]),
        completion_ids=turn.completion_ids[old:],
        logprobs=turn.logprobs[old:],
        policy_version=OLDEST,
    )


def group_for(case):
    return aged(ragged_group(MU) if case.name in ("ipa", "bc") else family_group(MU), len(str(case)))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_algorithm_learns_as_if_these_tokens_were_context(case):
    """Loss and gradient are those of rollouts in which they were never sampled, over the divisors of those they are in."""
    algorithm, group = case.build(), group_for(case)
    credits = credited(algorithm, group)
    other = [t if t.is_expert else replace(t, turns=tuple(map(told, t.turns))) for t in group]
    batch, _ = build_batch(group, bounded(credits), token_budget=BUDGET, skip_zero_credit=False)
    plain, _ = build_batch(other, credits, token_budget=BUDGET, skip_zero_credit=False)
    assert torch.equal(batch.tokens_BT, plain.tokens_BT)
    assert torch.equal(batch.loss_mask_BT, plain.loss_mask_BT)
    plain = replace(plain, counts=batch.counts, trajectory_tokens_B=batch.trajectory_tokens_B)
    # A critic has the state before a turn's first token, and that is another one where its first tokens are told.
    batch, plain = (replace(each, returns_BT=None) for each in (batch, plain))
    found, wanted = (
        differentiated(algorithm, batch_for(algorithm, group, PROX, lambda *_, **__: (each, None)), PI)  # noqa: B023
        for each in (batch, plain)
    )
    assert found[0] == pytest.approx(wanted[0], abs=1e-12)
    np.testing.assert_allclose(found[1], wanted[1], atol=1e-12)
    assert found[1].any()
    sampled = [turn for t in group if not t.is_expert for turn in t.turns]
    old = np.concatenate([turn.completion_ids[turn.versions < OLDEST] for turn in sampled])
    assert len(old) > 5
    assert not found[1][old].any()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_with_nothing_left_to_learn_are_left_out_and_the_ledger_closes(case):
    algorithm, group = case.build(), group_for(case)
    credits = bounded(credited(algorithm, group))
    whole, kept = (
        build_batch(group, credits, token_budget=BUDGET, skip_zero_credit=skip) for skip in (False, True)
    )
    assert kept[0].counts == whole[0].counts
    assert kept[0].normalizer == whole[0].normalizer
    assert len(branches_of_rows(group, credits)) == len(kept[0].tokens_BT)
    found = []
    for (batch, ledger), skip in zip((whole, kept), (False, True), strict=True):
        skip = skip and not any(credit.every_token for credit in credits)
        full = batch_for(algorithm, group, PROX, lambda *_, given=batch, **__: (given, None))
        monitors = Monitors(skip_zero_credit=skip)
        watched = monitors.watch(algorithm.loss)
        found.append(differentiated(type("Loss", (), {"loss": staticmethod(watched)}), full, PI))
        closed = ledger.after_losses(
            trained=monitors.trained, imitated=monitors.imitated, masked=monitors.masked
        )
        old_BT = batch.policy_version_BT < OLDEST
        assert not (batch.loss_mask_BT & old_BT).any()
        if case.name != "bc":
            assert closed.masked[TOO_OLD] > 0
    assert found[1][0] == pytest.approx(found[0][0], abs=1e-12)
    np.testing.assert_allclose(found[1][1], found[0][1], atol=1e-12)


def over_a_change(lengths=(4, 2), *, versions=None, parents=None):
    """Return a rollout whose first turn is of versions 2 and 5, half of its tokens each, and the others of 5."""
    one = trajectory("a", list(lengths), 1.0, ids=count(CONTEXT + 1), mu=MU, parents=parents)
    half = (VersionTokens(2, lengths[0] // 2), VersionTokens(5, lengths[0] - lengths[0] // 2))
    versions = versions or [half, *[5] * (len(lengths) - 1)]
    turns = tuple(replace(turn, policy_version=v) for turn, v in zip(one.turns, versions, strict=True))
    return replace(one, turns=turns)


def credit_of(one, **changes):
    return replace(Credit(np.ones(len(one.turns)), True, np.zeros(len(one.turns)), oldest=OLDEST), **changes)


def test_the_fresh_half_of_a_turn_is_learned_and_alone_makes_up_its_chunk():
    one = over_a_change()
    batch, ledger = build_batch([one], [credit_of(one)], token_budget=1)
    first, second = (turn.completion_ids.tolist() for turn in one.turns)
    assert batch.tokens_BT[batch.loss_mask_BT].tolist() == [*first[2:], *second]
    assert (ledger.trained, ledger.masked, ledger.total) == (4, {TOO_OLD: 2}, 6)
    log_ratio_BT = torch.tensor(PI)[batch.tokens_BT] - torch.tensor(MU)[batch.tokens_BT]
    means = chunks_of(batch).mean(log_ratio_BT)
    wanted = [(PI - MU)[first[2:]].mean(), (PI - MU)[second].mean()]
    np.testing.assert_allclose(means.numpy(), wanted)
    outside_BT = ~batch.loss_mask_BT
    assert not batch.advantages_BT[outside_BT].any()
    assert not batch.rollout_logprobs_BT[outside_BT].any()
    assert (batch.chunk_index_BT[outside_BT] == -1).all()
    whole, _ = build_batch([one], [credit_of(one, oldest=-1)], token_budget=1)
    assert (batch.counts, batch.chunks) == (whole.counts, whole.chunks)
    assert torch.equal(batch.trajectory_tokens_B, whole.trajectory_tokens_B)
    assert torch.equal(batch.policy_version_BT, whole.policy_version_BT)


@pytest.mark.parametrize(
    ("advantages", "every_token", "wanted"),
    [
        ([0.0, 1.0], False, {"faulty turn": 4}),
        ([0.0, 0.0], False, {"faulty turn": 4, "zero credit": 2}),
        ([0.0, 1.0], True, {TOO_OLD: 2}),
        ([1.0, 1.0], False, {TOO_OLD: 2}),
    ],
)
def test_a_turn_without_credit_keeps_its_reason(advantages, every_token, wanted):
    one = over_a_change()
    credit = credit_of(
        one, advantage_K=np.array(advantages), masked={0: "faulty turn"}, every_token=every_token
    )
    _, ledger = build_batch([one], [credit], token_budget=1)
    assert ledger.masked == wanted
    assert ledger.trained == 6 - sum(wanted.values())


def test_a_branch_that_is_too_old_has_no_row_and_what_it_shares_stays():
    """Turn 0 is shared by two branches; turn 1, on the first of them, is too old as a whole."""
    one = over_a_change([2, 3, 1], versions=[5, 2, 5], parents=[None, 0, 0])
    batch, ledger = build_batch([one], [credit_of(one)], token_budget=1)
    assert len(batch.tokens_BT) == 2  # turn 0 trains on the first branch, so that its row stays
    alone = replace(one, turns=(replace(one.turns[0], policy_version=2), *one.turns[1:]))
    fewer, left = build_batch([alone], [credit_of(alone)], token_budget=1)
    assert len(fewer.tokens_BT) == 1
    assert (ledger.trained, ledger.masked) == (3, {TOO_OLD: 3})
    assert (left.trained, left.masked) == (1, {TOO_OLD: 5})
    nothing, none = build_batch([one], [credit_of(one, oldest=9)], token_budget=1)
    assert len(nothing.tokens_BT) == none.trained == 0
    assert none.masked == {TOO_OLD: 6}


def test_experts_are_never_too_old():
    expert = trajectory("e", [2, 1], 1.0, ids=count(CONTEXT + 1), expert=True)
    credit = Credit(np.zeros(2), True, np.ones(2), oldest=OLDEST)
    batch, ledger = build_batch([expert], [credit], token_budget=1)
    assert (ledger.imitated, ledger.masked) == (3, {})
    assert int((batch.imitation_BT != 0).sum()) == 3


def test_what_is_kept_for_later_steps_has_no_bound_of_this_one():
    one = over_a_change()
    buffer = ReuseBuffer(ReuseOptions(trajectories=1, max_lag=9))
    buffer.keep([one], [credit_of(one)])
    drawn = buffer.draw(6, 0)
    _, ledger = build_batch(drawn.trajectories, drawn.credits, token_budget=1)
    assert (ledger.trained, ledger.masked) == (6, {})


def test_a_turn_whose_first_token_is_too_old_teaches_the_critic_nothing():
    """What it says of the state before that token is compared with a return that an old policy had."""
    one = over_a_change([4, 2, 3])
    critic = {"value_K": np.zeros(3), "return_K": np.ones(3)}
    batch, _ = build_batch([one], [credit_of(one, **critic)], token_budget=1)
    now_BT = torch.tensor(VALUES)[batch.tokens_BT].requires_grad_()
    loss, metrics = critic_loss(replace(batch, values_BT=now_BT), 0.2)
    loss.backward()
    taught = batch.tokens_BT[now_BT.grad != 0].tolist()
    assert taught == [int(turn.completion_ids[0]) for turn in one.turns[1:]]
    assert metrics["critic/loss"].weight == 2
    assert batch.counts.turns == 3


def test_the_mean_entropy_of_a_turn_is_of_its_fresh_tokens():
    one = over_a_change([2, 4], versions=[5, (VersionTokens(2, 3), VersionTokens(5, 1))])
    batch, _ = build_batch([one], [credit_of(one)], token_budget=1)
    entropy_BT = torch.tensor(np.sin(np.arange(TABLE)) + 2)[batch.tokens_BT]
    first, second = (np.sin(turn.completion_ids) + 2 for turn in one.turns)
    assert float(entropy_mean(batch, entropy_BT, "turns")) == pytest.approx((first.mean() + second[3]) / 2)


def test_weights_that_are_gone_are_missed_only_by_tokens_that_are_learned():
    versions = Versions(2)
    for version in (4, 5):
        versions.add(version, {"w": np.zeros(1, np.float32)})
    one = over_a_change()
    (credit,) = versions.without_gone([one], [credit_of(one)])
    assert credit.advantage_K.tolist() == [1, 1]
    (gone,) = versions.without_gone([one], [credit_of(one, oldest=-1)])
    assert gone.advantage_K.tolist() == [0, 1]
    assert gone.masked == {0: VERSION_GONE}
