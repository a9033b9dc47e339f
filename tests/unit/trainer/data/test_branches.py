"""What is learned of a session with branches: the tokens stay, the credit is shared out, the ledger names the rest."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from algo_reference import trajectory as recorded
from flat_branches import token_arrays
from hypothesis import given
from hypothesis import strategies as st

from agent_runtime.graph import validate
from agent_runtime.types import Turn, TurnLabel
from rock_env.env import observation_hash
from trainer.algo.base import Credit
from trainer.data.branches import OTHER_BRANCH, branch_weights, check_used, share_credit, trained_part
from trainer.data.build import build_batch
from trainer.errors import BatchError

MAIN, SIDE, SUB, SUMMARY = TurnLabel.MAIN, TurnLabel.SIDE, TurnLabel.SUB_AGENT, TurnLabel.SUMMARY


def session(parents, labels=None, lengths=None):
    """Return a session's record: turn i continues `parents[i]`, samples tokens 100 i + 1, …, and reads 1000 + i."""
    turns = []
    for index, parent in enumerate(parents):
        length = 2 if lengths is None else lengths[index]
        ids = np.arange(100 * index + 1, 100 * index + 1 + length, dtype=np.int32)
        logprobs = np.full(length, -1, np.float32)
        turns.append(Turn(index, parent, np.array([1000 + index], np.int32), ids, logprobs, "stop", 0))
    base = recorded("session", [1] * len(turns), 1.0, ids=count())
    return replace(
        base,
        turns=tuple(turns),
        observation_hashes=(observation_hash("o"),) * len(turns),
        turn_labels=tuple(labels or [MAIN] * len(turns)),
    )


def sequences(record):
    return {tuple(token_arrays(branch)[0].tolist()) for branch in record.branches()}


def test_what_is_not_trained_is_context_of_what_goes_on_from_it():
    whole = session([None, 0, 1, None], [MAIN, TurnLabel.ERROR, MAIN, SIDE])
    part, left = trained_part(whole)
    assert [turn.parent for turn in part.turns] == [None, 0]
    assert part.turns[1].context_ids.tolist() == [1001, 101, 102, 1002]
    assert left == {"label: error": 2, "label: side": 2}
    assert sequences(part) < sequences(whole)
    validate(part)


def test_labels_to_train_on_are_a_choice():
    whole = session([None, None, None], [MAIN, SUB, SUMMARY])
    part, left = trained_part(whole, ("main", "sub_agent"))
    assert part.turn_labels == (MAIN, SUB)
    assert left == {"label: summary": 2}
    assert trained_part(session([None, 0]))[0].turns[1].parent == 0


forests = st.lists(st.integers(-1, 10), min_size=1, max_size=12).map(
    lambda drawn: [None if i == 0 or p < 0 else p % i for i, p in enumerate(drawn)]
)


@given(forests, st.data())
def test_no_token_is_lost_or_changed_whatever_is_left_out(parents, data):
    labels = data.draw(st.lists(st.sampled_from(TurnLabel), min_size=len(parents), max_size=len(parents)))
    named = data.draw(st.sets(st.sampled_from(TurnLabel)))
    whole = session(parents, labels)
    part, left = trained_part(whole, named)
    assert set(left) == {f"label: {label.value}" for label in set(labels) - named}
    assert part.sampled_tokens + sum(left.values()) == whole.sampled_tokens
    paths = sequences(whole)
    for path in sequences(part):
        assert any(other[: len(path)] == path for other in paths)
    validate(part)


@given(forests)
def test_shares_add_up_to_one_reward(parents):
    record = session(parents)
    leaves = [i for i in range(len(parents)) if i not in parents]
    for rule, one in (("split", 1 / len(leaves)), ("leaf", None)):
        weight_K = branch_weights(record, rule)
        roots = [i for i, parent in enumerate(parents) if parent is None]
        assert weight_K[roots].sum() == pytest.approx(1)
        assert weight_K[leaves].sum() == pytest.approx(1)
        if one is not None:
            assert np.allclose(weight_K[leaves], one)
    assert (branch_weights(record, "whole") == 1).all()


def test_split_weighs_a_turn_by_the_branches_through_it():
    assert branch_weights(session([None, 0, 0, None]), "split").tolist() == pytest.approx(
        [2 / 3, 1 / 3, 1 / 3, 1 / 3]
    )


def test_leaf_trains_the_branch_that_ended_and_says_why_not_the_others():
    record = session([None, 0, 0, None, None], [MAIN, MAIN, MAIN, MAIN, SUB])
    credit = Credit(np.full(5, 2.0), True, np.zeros(5), masked={0: "faulty turn"})
    (shared,) = share_credit([record], [credit], "leaf")
    assert shared.advantage_K.tolist() == [0, 0, 0, 2, 0], (
        "a sub-agent that answers late did not end the session"
    )
    assert shared.masked[1] == OTHER_BRANCH
    assert shared.masked[0] == OTHER_BRANCH
    assert share_credit([record], [credit], "whole") == [credit]


def test_a_chat_loop_has_nothing_to_share():
    windowed = replace(session([None, None]), turn_labels=())
    credit = Credit(np.ones(2), True, np.zeros(2))
    assert share_credit([windowed], [credit], "split") == [credit]
    assert trained_part(windowed) == (windowed, {})
    with pytest.raises(BatchError, match="our own agents"):
        check_used([windowed], ("main",), "split")
    with pytest.raises(BatchError, match="train_labels"):
        check_used([windowed], ("main", "sub_agent"), "whole")
    check_used([windowed], ("main",), "whole")
    check_used([windowed, session([None])], ("main",), "leaf")


def test_a_part_that_is_no_tree_is_refused():
    record = session([None, 0])
    broken = replace(record, turns=(replace(record.turns[0], parent=1), record.turns[1]))
    with pytest.raises(BatchError, match="no tree"):
        branch_weights(broken, "split")


def test_the_ledger_names_the_label_of_every_other_token():
    whole = session([None, 0, None, 1], [MAIN, SUMMARY, SIDE, MAIN], [3, 5, 7, 2])
    part, left = trained_part(whole)
    credit = Credit(np.array([1.0, 0.0]), True, np.zeros(2))
    batch, ledger = build_batch([part], [credit], token_budget=10)
    ledger = ledger.with_context(left)
    assert ledger.total == whole.sampled_tokens == 17
    assert ledger.trained == 3
    assert ledger.masked == {"zero credit": 2, "label: summary": 5, "label: side": 7}
    assert ledger.metrics()["tokens/masked/label/side"] == 7
    assert int(batch.loss_mask_BT.sum()) == 5
    assert batch.tokens_BT[0].tolist()[:12] == [1000, 1, 2, 3, 1001, 101, 102, 103, 104, 105, 1003, 301]


def test_summaries_of_our_own_agents_stay_and_share_in_no_branches():
    ours = replace(session([None, 0, None], labels=(MAIN, SUMMARY, MAIN)), internal_turns=(1,))
    assert trained_part(ours) == (ours, {})
    credit = Credit(np.ones(3), True, np.zeros(3))
    assert share_credit([ours], [credit], "split") == [credit]
    with pytest.raises(BatchError, match="our own agents"):
        check_used([ours], ("main",), "split")
