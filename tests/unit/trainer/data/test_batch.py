"""The batch builder: what each token becomes, the ledger, and parts that add up."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, count

import numpy as np
import pytest
import torch
from algo_cases import SPECS
from algo_reference import (
    BUDGET,
    CONTEXT,
    TABLE,
    count_tokens,
    learners,
    ragged_group,
    tables,
    trajectory,
    winners,
)
from flat_branches import token_arrays
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_runtime.types import TurnFault
from trainer.algo.base import Credit
from trainer.algo.ipa import Ipa, IPAOptions
from trainer.data.build import Ledger, build_batch, microbatches, shuffled_rows, split_rows

ALGORITHM = Ipa(IPAOptions(reward_fail=-1, neg_weight=1, baseline="group_mean"))


def built(group, algorithm=ALGORITHM, **options):
    return build_batch(group, algorithm.credit(group), token_budget=BUDGET, **options)


def test_every_sampled_token_trains_exactly_once():
    group = ragged_group(tables()[0])
    batch, _ = built(group)
    trained = torch.bincount(batch.tokens_BT[batch.loss_mask_BT], minlength=TABLE).numpy()
    imitated = torch.bincount(batch.tokens_BT[batch.imitation_BT != 0], minlength=TABLE).numpy()
    for chosen, counts in ((learners(group), trained), (winners(group), imitated)):
        wanted = np.zeros(TABLE, int)
        for t in chosen:
            for turn in t.turns:
                wanted[turn.completion_ids] = 1
        np.testing.assert_array_equal(counts, wanted)


def test_tokens_carry_what_was_recorded_of_their_turn():
    mu, _, _ = tables()
    group = ragged_group(mu)
    batch, _ = built(group)
    credits = ALGORITHM.credit(group)
    by_token = {
        int(token): (turn, credit.advantage_K[turn.index], credit.positive, index)
        for index, (t, credit) in enumerate(zip(group, credits, strict=True))
        for turn in t.turns
        for token in turn.completion_ids
    }
    for b, t in batch.loss_mask_BT.nonzero().tolist():
        token = int(batch.tokens_BT[b, t])
        turn, advantage, positive, index = by_token[token]
        assert batch.policy_version_BT[b, t] == turn.policy_version
        assert batch.advantages_BT[b, t] == np.float32(advantage)
        assert batch.positive_BT[b, t] == positive
        assert batch.rollout_logprobs_BT[b, t] == np.float32(mu[token])
        assert batch.trajectory_index_B[b] == index
        assert batch.trajectory_tokens_B[b] == group[index].sampled_tokens
    assert not batch.rollout_logprobs_BT[~batch.loss_mask_BT].any()
    assert not batch.advantages_BT[~batch.loss_mask_BT].any()
    assert (batch.policy_version_BT[~batch.loss_mask_BT] == -1).all()


def test_rows_are_the_branches_the_engine_saw():
    group = [t for t in ragged_group(tables()[0]) if t.failure is None and not t.is_expert]
    batch, _ = built(group, skip_zero_credit=False)
    rows = [
        np.concatenate([ids for turn in branch.turns for ids in (turn.context_ids, turn.completion_ids)])
        for t in group
        for branch in t.branches()
    ]
    assert len(rows) == len(batch.tokens_BT)
    for row, tokens_T, segments_T in zip(rows, batch.tokens_BT, batch.segment_ids_BT, strict=True):
        assert tokens_T[: len(row)].tolist() == row.tolist()
        assert segments_T.tolist() == [1] * len(row) + [0] * (len(tokens_T) - len(row))


def test_the_ledger_adds_up_and_names_reasons():
    group = ragged_group(tables()[0])
    _, ledger = built(group, Ipa(IPAOptions()))
    assert ledger.total == count_tokens(group)
    assert ledger.masked == {"zero credit": sum(t.sampled_tokens for t in learners(group) if t.reward <= 0)}
    assert ledger.dropped == {"failed: policy": 4, "expert without success": 4}
    assert ledger.imitated == count_tokens(winners(group))


def test_expert_turns_without_weight_are_accounted_for():
    """The loop imitates an expert up to its crucial chunk and zeroes the rest."""
    ids = count(CONTEXT + 1)
    for windowed in (False, True):
        expert = trajectory("expert", [2, 3, 4], 1.0, ids=ids, expert=True, windowed=windowed)
        credit = Credit(np.zeros(3), True, np.array([0.5, 1.0, 0.0]))
        batch, ledger = build_batch([expert], [credit], token_budget=BUDGET)
        assert (ledger.imitated, ledger.masked) == (5, {"expert turn not imitated": 4})
        assert batch.imitation_counts.tokens == 5
        assert batch.trajectory_tokens_B.tolist() == [5] * len(batch.tokens_BT)
        assert len(batch.tokens_BT) == (2 if windowed else 1)
        none, ledger = build_batch([expert], [replace(credit, imitation_K=np.zeros(3))], token_budget=BUDGET)
        assert len(none.tokens_BT) == ledger.imitated == 0


def test_rows_agree_with_the_runtime_s_own_linearisation():
    group = ragged_group(tables()[0])
    batch, _ = built(group, skip_zero_credit=False)
    acts_BT = batch.loss_mask_BT | (batch.imitation_BT != 0)
    kept = [group[i] for i in dict.fromkeys(batch.trajectory_index_B.tolist())]
    rows = [token_arrays(branch) for t in kept for branch in t.branches()]
    for b, (ids, trains, logprobs) in enumerate(rows):
        assert batch.tokens_BT[b, : len(ids)].tolist() == ids.tolist()
        assert acts_BT[b, : len(ids)].tolist() == trains.tolist()
        rl = trains & batch.loss_mask_BT[b, : len(ids)].numpy()
        np.testing.assert_array_equal(
            batch.rollout_logprobs_BT[b, : len(ids)].numpy(), np.where(rl, logprobs, 0)
        )
    assert len(rows) == len(batch.tokens_BT)


def test_a_ledger_that_does_not_add_up_is_a_crash():
    with pytest.raises(ValueError, match="does not add up"):
        Ledger(total=10, trained=5, imitated=2, masked={}, dropped={"failed": 2})


def test_normalizers_are_known_before_anything_is_masked():
    group = ragged_group(tables()[0])
    batch, _ = built(group, Ipa(IPAOptions()))
    assert batch.normalizer == 7 * BUDGET
    assert batch.imitation_normalizer == 3 * BUDGET
    assert (batch.counts.trajectories, batch.counts.tokens) == (6, count_tokens(learners(group)))
    assert (batch.imitation_counts.trajectories, batch.imitation_counts.tokens) == (
        2,
        count_tokens(winners(group)),
    )


def test_leaving_out_zero_credit_changes_no_gradient():
    _, _, pi = tables()
    group = ragged_group(tables()[0])
    algorithm = Ipa(IPAOptions())
    losses = []
    for skip in (True, False):
        batch, _ = built(group, algorithm, skip_zero_credit=skip)
        table = torch.tensor(pi, requires_grad=True)
        algorithm.loss(batch, table[batch.tokens_BT]).loss.backward()
        losses.append((len(batch.tokens_BT), table.grad))
    assert losses[0][0] < losses[1][0]
    np.testing.assert_allclose(losses[0][1].numpy(), losses[1][1].numpy(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("windowed", [False, True])
def test_a_turn_without_credit_still_counts_in_the_ratio_of_its_chunk(windowed):
    """However the record lies in rows: a window puts each turn into a row of its own."""
    mu, prox, pi = tables()
    ids = count(CONTEXT + 1)
    faults = (TurnFault.NONE, TurnFault.TOOL_FAILED, TurnFault.NONE)
    one = trajectory("a", [2, 3, 4], 1.0, ids=ids, mu=mu, windowed=windowed)
    group = [replace(one, turn_faults=faults), trajectory("b", [2, 2], 2.0, ids=ids, mu=mu)]
    algorithm = Ipa(IPAOptions(chunk_turns=2, learn_faulty=False, baseline="group_mean"))
    first = [group[0].turns[k].completion_ids for k in (0, 1)]
    rho = np.exp((pi - mu)[np.concatenate(first)].mean())
    assert rho < 1
    assert abs(rho - np.exp((pi - mu)[first[0]].mean())) > 0.01
    batch, _ = built(group, algorithm)
    batch = replace(batch, prox_logprobs_BT=torch.tensor(prox)[batch.tokens_BT])
    table = torch.tensor(pi, requires_grad=True)
    algorithm.loss(batch, table[batch.tokens_BT]).loss.backward()
    advantage = 0.95 * (1.0 - 1.5)
    np.testing.assert_allclose(table.grad[first[0]], -rho * advantage / (2 * BUDGET), rtol=1e-6)
    assert not table.grad[first[1]].any()


def test_padding_is_a_multiple():
    batch, _ = built(ragged_group(tables()[0]), pad_to=32)
    assert batch.tokens_BT.shape[1] == 32
    assert not batch.tokens_BT[batch.segment_ids_BT == 0].any()


def test_nothing_to_train_is_an_empty_batch():
    failed = [t for t in ragged_group(tables()[0]) if t.failure]
    for group in ([], failed):
        batch, ledger = built(group)
        assert batch.tokens_BT.shape == (0, 0)
        assert ledger.trained == 0
        assert microbatches(batch, 100) == split_rows(batch, 2) == []
        assert ALGORITHM.loss(batch, torch.zeros(0, 0, requires_grad=True)).loss.item() == 0


@pytest.mark.parametrize(
    ("credit", "message"),
    [
        (Credit(np.zeros(2), True, np.zeros(3)), "entries for 3 turns"),
        (Credit(np.array([1, np.nan, 1]), True, np.zeros(3)), "not finite"),
        (Credit(np.ones(3), True, np.ones(3)), "imitation weight on a sampled"),
        (Credit(np.ones(3), True, np.zeros(3), chunk_K=np.array([0, 2, 1])), "rising index"),
    ],
)
def test_credit_that_does_not_fit_is_refused(credit, message):
    one = trajectory("a", [1, 1, 1], 1.0, ids=count(CONTEXT), mu=tables()[0])
    with pytest.raises(ValueError, match=message):
        build_batch([one], [credit], token_budget=1)


def test_broken_recordings_are_refused():
    ids = count(CONTEXT)
    good = trajectory("a", [2, 2], 1.0, ids=ids, mu=tables()[0])
    turn = good.turns[0]
    broken = {
        "log-probability per completion token": replace(turn, logprobs=turn.logprobs[:1]),
        "NaN": replace(turn, logprobs=np.full(2, np.nan, np.float32)),
        "no prompt": replace(turn, context_ids=turn.context_ids[:0]),
    }
    for message, bad in broken.items():
        with pytest.raises(ValueError, match=message):
            built([replace(good, turns=(bad, *good.turns[1:]))], Ipa(IPAOptions()))
    with pytest.raises(ValueError, match="one credit per trajectory"):
        build_batch([good], [], token_budget=1)


def whole_and_parts(batch, parts, algorithm):
    _, prox, pi = tables()

    def run(part):
        part = replace(part, prox_logprobs_BT=torch.tensor(prox)[part.tokens_BT])
        table = torch.tensor(pi, requires_grad=True)
        output = algorithm.loss(part, table[part.tokens_BT])
        output.loss.backward()
        return output, table.grad.numpy()

    output, grad = run(batch)
    outputs = [run(part) for part in parts]
    np.testing.assert_allclose(sum(o.loss.item() for o, _ in outputs), output.loss.item(), rtol=1e-10)
    np.testing.assert_allclose(sum(g for _, g in outputs), grad, rtol=1e-10, atol=1e-15)
    for name, metric in output.metrics.items():
        for of in ("total", "weight"):
            summed = sum(getattr(o.metrics[name], of) for o, _ in outputs)
            assert summed == pytest.approx(getattr(metric, of), rel=1e-6, abs=1e-6)


@settings(max_examples=20)
@given(chunk_turns=st.integers(0, 3), max_tokens=st.integers(1, 200), seed=st.integers(0, 9))
def test_microbatches_add_up_to_the_batch(chunk_turns, max_tokens, seed):
    mu, _, _ = tables()
    group = [g for g in ragged_group(mu) if not g.failure]
    order = np.random.default_rng(seed).permutation(len(group))
    group = [group[i] for i in order]
    algorithm = Ipa(IPAOptions(chunk_turns=chunk_turns, baseline="group_mean", mask_high=1.5))
    batch, _ = built(group, algorithm)
    parts = microbatches(batch, max_tokens)
    assert sum(len(part.tokens_BT) for part in parts) == len(batch.tokens_BT)
    whole_and_parts(batch, parts, algorithm)


@settings(max_examples=30)
@given(
    choice=st.sampled_from(
        [
            ("gspo", {}),
            ("topr", {}),
            ("rloo", {"correction": "tis_sequence"}),
            ("grpo", {"correction": "geometric_sequence"}),
            ("cispo", {"correction": "mis_chunk"}),
        ]
    ),
    max_tokens=st.integers(1, 200),
    seed=st.integers(0, 9),
)
def test_no_microbatch_cuts_a_sequence_that_is_weighed_as_a_whole(choice, max_tokens, seed):
    name, options = choice
    spec, _ = SPECS[name]
    algorithm, group = spec.build(spec.options(**options)), ragged_group(tables()[0])
    order = np.random.default_rng(seed).permutation(len(group))
    batch, _ = built([group[i] for i in order], algorithm)
    whole_and_parts(batch, microbatches(batch, max_tokens), algorithm)


@pytest.mark.parametrize("parts", [1, 2, 3, 100])
def test_minibatches_are_whole_groups_and_add_up(parts):
    """The rollouts of a group stay together, whatever the order they come in; experts' rows are dealt one by one."""
    members = [replace(t, group_id=f"task-{n % 3}") for n, t in enumerate(ragged_group(tables()[0]))]
    batch, _ = built(members)
    experts = sum(members[index].is_expert for index in batch.trajectory_index_B.tolist())
    minis = split_rows(batch, parts)
    indices = [mini.trajectory_index_B.tolist() for mini in minis]
    groups = [{members[i].group_id for i in index if not members[i].is_expert} for index in indices]
    assert sum(map(len, groups)) == len(set().union(*groups)) == 3
    assert sum(members[i].is_expert for index in indices for i in index) == experts > 1
    assert len(minis) == min(parts, 3 + experts)
    whole_and_parts(batch, minis, ALGORITHM)


@pytest.mark.parametrize("parts", [1, 3, 100])
def test_shuffled_rows_are_the_same_rows_in_another_order(parts):
    batch, _ = built(ragged_group(tables()[0]))
    hands = [shuffled_rows(batch, parts, seed) for seed in (0, 0, 1)]
    rows = [[part.tokens_BT[part.tokens_BT > 0].tolist() for part in hand] for hand in hands]
    assert rows[0] == rows[1]
    assert sorted(chain.from_iterable(rows[0])) == sorted(chain.from_iterable(rows[2]))
    assert len(rows[0]) == min(parts, len(batch.tokens_BT))
    if parts == 3:
        assert rows[0] != rows[2]
    whole_and_parts(batch, hands[0], ALGORITHM)


def test_microbatches_fit_and_are_trimmed():
    mu, _, _ = tables()
    ids = count(CONTEXT + 1)
    group = [trajectory(str(n), [n], 1.0, ids=ids, mu=mu) for n in (40, 3, 5, 1, 30, 7)]
    batch, _ = built(group, Ipa(IPAOptions()))
    parts = microbatches(batch, 48)
    shapes = [tuple(part.tokens_BT.shape) for part in parts]
    assert shapes == [(4, 8), (1, 32), (1, 48)]


def test_order_of_trajectories_does_not_matter():
    mu, prox, pi = tables()
    group = ragged_group(mu)
    table = torch.tensor(pi)
    losses = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(group))
        batch, _ = built([group[i] for i in order])
        batch = replace(batch, prox_logprobs_BT=torch.tensor(prox)[batch.tokens_BT])
        losses.append(ALGORITHM.loss(batch, table[batch.tokens_BT]).loss.item())
    np.testing.assert_allclose(losses, losses[0], rtol=1e-6)
