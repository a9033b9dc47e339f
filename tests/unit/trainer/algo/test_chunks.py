"""Chunk reductions at every kind of chunk boundary."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import numpy as np
import pytest
import torch
from algo_reference import CONTEXT, learners, ragged_group, tables, trajectory

from trainer.algo.ipa import Ipa, IPAOptions
from trainer.algo.terms.chunks import chunks_of
from trainer.data.build import build_batch


def batch_of(group, **options):
    return build_batch(
        group, Ipa(IPAOptions(**options)).credit(group), token_budget=1, skip_zero_credit=False
    )[0]


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("chunk_turns", [0, 1, 2])
def test_means_are_those_of_a_loop(windowed, chunk_turns):
    mu, _, pi = tables()
    one = trajectory("a", [3, 1, 0, 2, 4], 1.0, ids=count(CONTEXT + 1), mu=mu, windowed=windowed)
    batch = batch_of([one], chunk_turns=chunk_turns)
    size = chunk_turns or 5
    wanted = []
    for first in range(0, 5, size):
        ids = np.concatenate([turn.completion_ids for turn in one.turns[first : first + size]])
        wanted.append(pi[ids].mean() if len(ids) else 0.0)
    chunks = chunks_of(batch)
    values_BT = torch.tensor(pi)[batch.tokens_BT]
    np.testing.assert_allclose(chunks.mean(values_BT).numpy(), wanted, rtol=1e-12)
    sums = np.array(wanted) * chunks.count_C.numpy()
    np.testing.assert_allclose(chunks.total(values_BT).numpy(), sums, rtol=1e-12)


def test_adjacent_chunks_without_a_token_between_them_stay_apart():
    batch = batch_of([trajectory("a", [2, 2], 1.0, ids=count(CONTEXT + 1), mu=tables()[0])])
    values_BT = torch.where(batch.chunk_index_BT == 0, 1.0, 3.0)
    batch.loss_mask_BT[0] = False
    batch.loss_mask_BT[0, 1:5] = True
    batch.chunk_index_BT[0, 1:5] = torch.tensor([0, 0, 1, 1])
    values_BT[0, 1:5] = torch.tensor([1.0, 2.0, 5.0, 7.0])
    chunks = chunks_of(batch)
    assert chunks.mean(values_BT).tolist() == [1.5, 6.0]
    assert chunks.spread(chunks.mean(values_BT))[0, :6].tolist() == [0, 1.5, 1.5, 6.0, 6.0, 0]


def test_every_trained_token_has_a_chunk_and_no_other_has():
    group = ragged_group(tables()[0])
    batch = batch_of(group, chunk_turns=2)
    assert torch.equal(batch.chunk_index_BT >= 0, batch.loss_mask_BT)
    assert batch.chunks == sum(-(-len(t.turns) // 2) for t in learners(group))
    assert int(batch.chunk_index_BT.max()) == batch.chunks - 1


def test_values_outside_chunks_may_be_anything():
    batch = batch_of(ragged_group(tables()[0]))
    values_BT = torch.randn(batch.tokens_BT.shape, generator=torch.Generator().manual_seed(0))
    poisoned_BT = torch.where(batch.loss_mask_BT, values_BT, torch.nan)
    chunks = chunks_of(batch)
    assert torch.equal(chunks.mean(values_BT), chunks.mean(poisoned_BT))


@pytest.mark.parametrize("chunk_turns", [0, 1, 2])
def test_long_ragged_rows_in_any_order_equal_a_loop_per_segment(chunk_turns):
    """Float32, hundreds of tokens per chunk, chunks over rows, chunks that forks tear apart: equal to 1e-6."""
    rng = np.random.default_rng(chunk_turns)
    ids = count(CONTEXT + 1)
    group = [
        trajectory(
            str(n),
            rng.integers(0, 400, 6).tolist(),
            1.0,
            ids=ids,
            windowed=n % 3 == 1,
            parents=[None, 0, 0, 2, 1, 3] if n % 3 == 2 else None,
            mu=np.zeros(20_000),
        )
        for n in range(6)
    ]
    batch = batch_of(group, chunk_turns=chunk_turns)
    order = torch.from_numpy(rng.permutation(len(batch.tokens_BT)))
    batch = replace(batch, loss_mask_BT=batch.loss_mask_BT[order], chunk_index_BT=batch.chunk_index_BT[order])
    values_BT = torch.randn(batch.tokens_BT.shape, generator=torch.Generator().manual_seed(0))
    chunks = chunks_of(batch)
    means_C = chunks.mean(values_BT)
    spread_BT = chunks.spread(means_C.exp())
    assert chunks.count_C.sum() == batch.loss_mask_BT.sum()
    assert not spread_BT[~batch.loss_mask_BT].any()
    for chunk in range(batch.chunks):
        at_BT = batch.loss_mask_BT & (batch.chunk_index_BT == chunk)
        mean = float(values_BT[at_BT].double().mean()) if at_BT.any() else 0.0
        assert float(means_C[chunk]) == pytest.approx(mean, abs=1e-6)
        assert torch.equal(spread_BT[at_BT], means_C[chunk].exp().expand(int(at_BT.sum())))


def test_a_batch_without_a_token_has_empty_chunks():
    batch, _ = build_batch([], [], token_budget=1)
    chunks = chunks_of(batch)
    assert chunks.mean(torch.zeros(0, 0)).shape == (0,)
    assert chunks.spread(torch.zeros(0)).shape == (0, 0)
