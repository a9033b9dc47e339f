"""Tokens of one turn under several versions: batch, lag, pi_old, what is gone and what is too old."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from algo_reference import CONTEXT, tables, trajectory

from agent_runtime.store import decode, encode
from agent_runtime.types import VersionTokens
from trainer.algo.base import Credit
from trainer.algo.terms.monitors import lag_metrics
from trainer.config import ReuseOptions
from trainer.data.build import build_batch
from trainer.data.reuse import ReuseBuffer
from trainer.errors import BatchError
from trainer.learners.versions import VERSION_GONE, Versions

MU, _, _ = tables()
CHANGE = (VersionTokens(6, 9), VersionTokens(7, 15))


def over_a_change(*, parents=None):
    """Return a rollout of turns of 24, 2 and 3 tokens: the first over a change from version 6 to 7."""
    one = trajectory("a", [24, 2, 3], 1.0, ids=count(CONTEXT + 1), mu=MU, parents=parents)
    versions = (CHANGE, 7, 8)
    turns = tuple(replace(turn, policy_version=v) for turn, v in zip(one.turns, versions, strict=True))
    return decode(encode(replace(one, turns=turns)))


def credit_of(one):
    return Credit(np.ones(len(one.turns)), True, np.zeros(len(one.turns)))


def built(one):
    return build_batch([one], [credit_of(one)], token_budget=1)[0]


def kept(keep, versions):
    made = Versions(keep)
    for version in versions:
        made.add(version, {"w": np.full((1, 2), version, np.float32)})
    return made


@pytest.mark.parametrize("parents", [None, [None, 0, 0]], ids=["one branch", "two branches"])
def test_each_token_of_the_batch_has_its_own_version(parents):
    one = over_a_change(parents=parents)
    batch = built(one)
    found = {
        int(token): int(version)
        for token, version in zip(
            batch.tokens_BT[batch.loss_mask_BT], batch.policy_version_BT[batch.loss_mask_BT], strict=True
        )
    }
    first, second, third = (turn.completion_ids.tolist() for turn in one.turns)
    wanted = dict.fromkeys(first[:9], 6) | dict.fromkeys(first[9:] + second, 7) | dict.fromkeys(third, 8)
    assert found == wanted
    assert (batch.policy_version_BT[~batch.loss_mask_BT] == -1).all()


def test_lag_is_counted_token_by_token():
    found = lag_metrics(built(over_a_change()), 8)
    assert found == {"lag/mean": pytest.approx((9 * 2 + 17 * 1) / 29), "lag/max": 2}


def test_pi_old_of_each_token_is_asked_of_the_weights_that_sampled_it():
    def ask(part, weights):
        return torch.where(part.loss_mask_BT, float(weights["w"][0, 0]), 0.0)

    batch = built(over_a_change())
    found_BT = kept(3, [6, 7, 8]).logprobs(batch, ask)
    assert found_BT[batch.loss_mask_BT].tolist() == [6] * 9 + [7] * 17 + [8] * 3
    gone_BT = kept(2, [6, 7, 8]).logprobs(batch, ask)
    np.testing.assert_array_equal(gone_BT[batch.loss_mask_BT], [np.nan] * 9 + [7] * 17 + [8] * 3)


@pytest.mark.parametrize("there", [[6, 8], [7, 8]])
def test_a_turn_over_two_versions_needs_both(there):
    one = over_a_change()
    (credit,) = kept(2, there).without_gone([one], [credit_of(one)])
    assert credit.advantage_K.tolist() == [0, float(7 in there), 1]
    assert credit.masked[0] == VERSION_GONE
    (whole,) = kept(3, [6, 7, 8]).without_gone([one], [credit_of(one)])
    assert whole.advantage_K.tolist() == [1, 1, 1]


def test_a_kept_success_is_as_old_as_its_oldest_token():
    one = over_a_change()
    buffer = ReuseBuffer(ReuseOptions(trajectories=1, max_lag=2))
    buffer.keep([one], [credit_of(one)])
    assert len(buffer.draw(8, 0).trajectories) == 1
    assert buffer.draw(9, 0).too_old == 1


def test_spans_that_do_not_hold_a_turns_tokens_are_a_broken_recording():
    one = over_a_change()
    broken = replace(one.turns[0], policy_version=(VersionTokens(6, 9), VersionTokens(7, 14)))
    with pytest.raises(BatchError, match=r"turn 0 of trajectory 'a' is broken: expected spans .* 24 tokens"):
        built(replace(one, turns=(broken, *one.turns[1:])))
