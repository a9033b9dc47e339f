"""The token ledger: every fate by its reason, and a crash where something was lost or learned twice."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from algo_reference import BUDGET, CONTEXT, TABLE, ragged_group, tables, trajectory

from agent_runtime.types import RolloutFailure, StopReason, TurnFault
from trainer.algo.base import Credit
from trainer.algo.ipa import Ipa, IPAOptions
from trainer.algo.terms.monitors import Monitors
from trainer.data.build import build_batch, microbatches, split_rows
from trainer.data.ledger import Ledger, add_step
from trainer.errors import LedgerError, TrainerError

MU, PROX, PI = tables()


def closed(group, options, parts=lambda batch: [batch]):
    """Return the ledger before and after the losses of all parts."""
    algorithm = Ipa(options)
    batch, ledger = build_batch(group, algorithm.credit(group), token_budget=BUDGET)
    batch = replace(batch, prox_logprobs_BT=torch.tensor(PROX)[batch.tokens_BT])
    monitors = Monitors()
    for part in parts(batch):
        monitors.watch(algorithm.loss)(part, torch.tensor(PI)[part.tokens_BT])
    counts = {"trained": monitors.trained, "imitated": monitors.imitated, "masked": monitors.masked}
    return ledger, counts


def test_a_chunk_that_the_loss_masks_is_not_trained():
    """Counted here token by token from the policy tables, without a batch."""
    group = ragged_group(MU)
    options = IPAOptions(reward_fail=-1, neg_weight=1, mask_high=1.2)
    ledger, counts = closed(group, options)
    masked = 0
    for t in group:
        if t.failure is None and not t.is_expert:
            for turn in t.turns:
                ids = turn.completion_ids
                masked += len(ids) * bool(len(ids) and np.exp((PROX - MU)[ids].mean()) > 1.2)
    after = ledger.after_losses(**counts)
    assert 0 < masked < ledger.trained
    assert after.masked["chunk mask"] == masked
    assert after.trained == ledger.trained - masked
    assert after.total == ledger.total == sum(t.sampled_tokens for t in group)


def test_what_a_term_of_weight_0_would_train_is_masked_by_that():
    ledger, counts = closed(ragged_group(MU), IPAOptions(reward_fail=-1, neg_weight=1, lambda_rl=0))
    after = ledger.after_losses(**counts)
    assert after.trained == 0
    assert after.masked["lambda_rl 0"] == ledger.trained > 0
    assert after.imitated == ledger.imitated > 0


@pytest.mark.parametrize("cut", [lambda b: split_rows(b, 2), lambda b: microbatches(b, 24)])
def test_the_account_is_the_same_however_the_batch_is_cut(cut):
    options = IPAOptions(baseline="group_mean", mask_high=1.2)
    _, whole = closed(ragged_group(MU), options)
    ledger, parts = closed(ragged_group(MU), options, cut)
    assert parts == whole
    ledger.after_losses(**parts)


@pytest.mark.parametrize("parts", [lambda b: split_rows(b, 3)[1:], lambda b: [b, b]])
def test_rows_that_no_loss_saw_or_that_were_learned_twice_stop_the_run(parts):
    ledger, counts = closed(ragged_group(MU), IPAOptions(baseline="group_mean"), parts)
    with pytest.raises(LedgerError, match=r"does not add up: \d+ tokens accounted for, \d+ sampled"):
        ledger.after_losses(**counts)
    assert issubclass(LedgerError, TrainerError)


def test_a_token_in_two_masks_counts_for_the_first():
    one = trajectory("a", [3], 1.0, ids=count(CONTEXT), mu=MU)
    batch, ledger = build_batch([one], [Credit(np.ones(1), True, np.zeros(1))], token_budget=1)
    algorithm, monitors = Ipa(IPAOptions()), Monitors()
    first, both = torch.zeros_like(batch.loss_mask_BT), torch.ones_like(batch.loss_mask_BT)
    first[batch.tokens_BT == CONTEXT] = True

    def loss(part, logprobs_BT):
        return replace(algorithm.loss(part, logprobs_BT), masked={"one": first, "two": both})

    monitors.watch(loss)(batch, torch.tensor(PI)[batch.tokens_BT])
    assert (monitors.trained, monitors.masked) == (0, {"one": 1, "two": 2})
    after = ledger.after_losses(trained=0, imitated=0, masked=monitors.masked)
    assert after.masked == {"one": 1, "two": 2}


def test_turns_left_out_are_told_apart_by_reason():
    ids = count(CONTEXT + 1)
    faults = (TurnFault.NONE, TurnFault.TOOL_FAILED, TurnFault.NONE)
    won = replace(trajectory("won", [2, 3, 1], 1.0, ids=ids, mu=MU), turn_faults=faults)
    lost = replace(trajectory("lost", [4, 5, 1], 0.0, ids=ids, mu=MU), turn_faults=faults)
    expert = replace(trajectory("expert", [1, 6, 1], 1.0, ids=ids, expert=True), turn_faults=faults)
    group = [won, lost, expert]
    ledger, _ = closed(group, IPAOptions(learn_faulty=False))
    assert ledger.masked == {"faulty turn": 3 + 6, "zero credit": 10}
    assert (ledger.trained, ledger.imitated, ledger.experts) == (3, 2, 8)
    learned, _ = closed(group, IPAOptions(learn_faulty=True))
    assert learned.masked == {"faulty turn": 6, "zero credit": 10}


def test_a_turn_of_weight_zero_is_not_trained_although_its_row_is_there():
    one = trajectory("a", [2, 3, 1], 1.0, ids=count(CONTEXT), mu=MU)
    credit = Credit(np.array([1.0, 0.0, 1e-60]), True, np.zeros(3))
    batch, ledger = build_batch([one], [credit], token_budget=1)
    assert len(batch.tokens_BT) == 1
    assert (ledger.trained, ledger.masked) == (2, {"zero credit": 4})
    _, everything = build_batch([one], [credit], token_budget=1, skip_zero_credit=False)
    assert (everything.trained, everything.masked) == (6, {})


def test_tokens_of_a_step_that_never_came_back_are_dropped_with_their_rollout():
    ids = count(CONTEXT)
    failed = replace(
        trajectory("lost", [2], 0.0, ids=ids, mu=MU, failed=True),
        failure=RolloutFailure("env_lost", "gone", 1),
        stop_reason=StopReason.FAILED,
        lost_tokens=5,
    )
    group = [failed, trajectory("won", [3], 1.0, ids=ids, mu=MU)]
    ledger, _ = closed(group, IPAOptions())
    assert (ledger.total, ledger.dropped) == (10, {"failed: env_lost": 7})
    assert ledger.dropped_trajectories == {"failed: env_lost": 1}
    assert ledger.metrics()["tokens/dropped/failed/env_lost"] == 7


def test_the_run_s_account_is_of_its_own_rollouts():
    step = Ledger(total=12, trained=7, imitated=2, masked={"zero credit": 3}, dropped={}, experts=2).metrics()
    totals = {"total": 1}
    add_step(totals, step, sampled=10)
    assert totals == {
        "total": 13,
        "experts": 2,
        "reused": 0,
        "trained": 7,
        "imitated": 2,
        "masked/zero_credit": 3,
    }
    with pytest.raises(LedgerError, match="accounts for 10 sampled tokens, the step's rollouts sampled 11"):
        add_step(totals, step, sampled=11)


def test_a_negative_part_does_not_make_up_for_another():
    with pytest.raises(LedgerError, match="does not add up"):
        Ledger(total=5, trained=7, imitated=-2, masked={}, dropped={})


def test_every_token_of_the_table_has_one_fate():
    """A slow account beside the ledger's: each token id of the ragged group, once."""
    group = ragged_group(MU)
    algorithm = Ipa(IPAOptions(baseline="leave_one_out", learn_faulty=False))
    credits = algorithm.credit(group)
    _, ledger = build_batch(group, credits, token_budget=BUDGET)
    fates = np.zeros(TABLE, int)
    named = {"trained": 0, "imitated": 0, "masked": 0, "dropped": 0}
    for t, credit in zip(group, credits, strict=True):
        for turn in t.turns:
            fates[turn.completion_ids] += 1
            weight = credit.imitation_K[turn.index] if t.is_expert else credit.advantage_K[turn.index]
            fate = "imitated" if t.is_expert else "trained"
            named["dropped" if credit.dropped else fate if weight else "masked"] += len(turn.completion_ids)
    assert fates.max() == 1
    assert named == {
        "trained": ledger.trained,
        "imitated": ledger.imitated,
        "masked": sum(ledger.masked.values()),
        "dropped": sum(ledger.dropped.values()),
    }
