"""A batch cut into passes: what rows begin with in common counts once, and every row is learned once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from learner_cases import learner, llama, rows_of, weighted_likelihood

from trainer.data.batch import TrainBatch
from trainer.data.build import microbatches
from trainer.learners.passes import passes_of

WIDTH = 576


def walks(prompts: int, rows: int, *, prompt: int = 60, answer: int = 4) -> TrainBatch:
    """Return rows of several prompts in turns; every prompt begins with the same 40 tokens, and the answers train."""
    batch = rows_of([prompt + answer] * (prompts * rows), trained=answer)
    own = rows_of([prompt] * prompts, seed=1).tokens_BT
    own[:, :40] = own[0, :40].clone()
    batch.tokens_BT[:, :prompt] = own.repeat(rows, 1)
    return batch


def learned(batch: TrainBatch, shares: int, most: int, ranks: int = 1) -> list[list[int]]:
    passes = passes_of(batch, most, shares=shares, ranks=ranks)
    return [each.batch.trajectory_index_B.tolist() for each in passes]


def test_shared_tokens_count_once_and_rows_of_one_prompt_are_together():
    batch = walks(8, 6)
    passes = passes_of(batch, 200, shares=WIDTH)
    assert all(each.tokens <= 200 for each in passes)
    assert sum(each.tokens for each in passes) < 40 * len(passes) + 8 * 20 + 48 * 4 + 100
    assert len(passes) < len(microbatches(batch, 200)) / 3
    homes = [{row % 8 for row in each} for each in learned(batch, WIDTH, 200)]
    assert sum(map(len, homes)) < 8 + len(homes)


@pytest.mark.parametrize("shares", [0, WIDTH])
@pytest.mark.parametrize("most", [1, 100, 333, 10_000])
def test_every_row_is_learned_once_in_the_same_order_each_time(shares, most):
    batch = walks(5, 4)
    cuts = learned(batch, shares, most)
    assert sorted(row for cut in cuts for row in cut) == list(range(20))
    assert cuts == learned(batch, shares, most)
    assert sum(each.trained for each in passes_of(batch, most, shares=shares)) == 80


def test_rows_that_share_a_chunk_stay_together_whatever_they_begin_with():
    batch = walks(4, 4)
    chunk_B = torch.arange(16) // 2
    batch = replace(batch, chunk_index_BT=torch.where(batch.loss_mask_BT, chunk_B[:, None], -1), chunks=8)
    for cut in learned(batch, WIDTH, 150):
        assert {row // 2 * 2 + 1 for row in cut} | {row // 2 * 2 for row in cut} == set(cut)
    assert len(learned(batch, WIDTH, 1)) == 8


def test_rows_with_nothing_in_common_are_cut_by_their_length():
    batch = rows_of([300, 9] * 4)
    batch.tokens_BT[:, 0] = torch.arange(8)
    assert learned(batch, WIDTH, 700) == learned(batch, 0, 700) == [[1, 3, 5, 7], [0, 2], [4, 6]]


def test_rows_of_which_nothing_is_computed_are_bounded_too(monkeypatch):
    batch = walks(1, 40, prompt=60, answer=4)
    batch.tokens_BT[:] = batch.tokens_BT[0].clone()
    assert len(learned(batch, WIDTH, 700)) == 1
    monkeypatch.setattr("trainer.learners.passes._MOST_CELLS", 64 * 10)
    cuts = learned(batch, WIDTH, 700)
    assert sorted(row for cut in cuts for row in cut) == list(range(40))
    assert max(map(len, cuts)) <= 10


def test_a_batch_that_trains_nothing_takes_no_tokens():
    batch = rows_of([9, 12], trained=0)
    assert [each[1:] for each in passes_of(batch, 100, shares=WIDTH)] == [(0, 0)]
    assert passes_of(rows_of([]), 100, shares=WIDTH) == []


@pytest.mark.parametrize("ranks", [2, 3])
def test_each_rank_gets_a_pass_where_there_are_rows_enough(ranks):
    batch = walks(6, 6)
    assert len(learned(batch, WIDTH, 10_000)) == 1
    assert len(learned(batch, WIDTH, 10_000, ranks)) >= ranks


@pytest.mark.parametrize("most", [150, 10_000])
def test_the_network_computes_as_many_tokens_as_were_counted(most):
    train = learner(llama(context=128), microbatch_tokens=most)
    batch, seen, hidden = walks(6, 5), [], train.net._hidden
    train.net._hidden = lambda **given: (seen.append(given["input_ids"].numel()), hidden(**given))[1]
    train.step(batch, weighted_likelihood, lr=1e-3)
    assert seen == [each.tokens for each in passes_of(batch, most, shares=train.shared_width())]
    assert train.largest is not None
    assert train.largest.tokens == max(seen)


def test_a_step_in_passes_moves_the_weights_as_one_without_and_again_bit_for_bit():
    def moved(most: int, *, shares: bool = True) -> dict[str, np.ndarray]:
        train = learner(llama(context=128), microbatch_tokens=most)
        train.net.shares = shares
        train.step(walks(6, 5), weighted_likelihood, lr=1e-3)
        return {name: value.copy() for name, value in train.weights().items()}

    expected, found, again = moved(10_000, shares=False), moved(150), moved(150)
    assert max(float(np.abs(expected[name] - found[name]).max()) for name in expected) < 1e-5
    assert all(np.array_equal(found[name], again[name]) for name in found)
