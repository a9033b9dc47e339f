"""Rows that share their beginning as trees: the same values and gradients, where it saves, and only there."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from learner_cases import gradients, learner, llama, rows_of, weighted_likelihood

from trainer.learners.prefixes import laid_out, trees_of
from trainer.learners.recompute import recompute_layers
from trainer.models.hf import HFNet

WIDTH = 8


def group(prompt, answers, seed=0, vocabulary=96):
    """Return a batch whose rows share a prompt; the tokens of their answers train."""
    batch = rows_of([prompt + answer for answer in answers], trained=0, seed=seed, vocabulary=vocabulary)
    batch.tokens_BT[:, :prompt] = batch.tokens_BT[0, :prompt].clone()
    mask_BT = batch.segment_ids_BT.bool() & (torch.arange(batch.tokens_BT.shape[1]) >= prompt)
    batch.loss_mask_BT[:] = mask_BT
    batch.advantages_BT[:] = torch.where(mask_BT, torch.linspace(-1, 1, len(answers))[:, None], 0.0)
    return batch


def both(model, batch):
    """Return loss gradients and log-probabilities with trees and without."""
    found = []
    for shares in (True, False):
        train = learner(model)
        assert train.net.shares
        train.net.shares = shares
        found.append((gradients(train, batch), train.logprobs(batch)))
    return found


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_values_and_gradients_are_those_of_rows_apart(kind, checkpointing):
    model, batch = llama(kind=kind, context=128).double(), group(60, [5, 9, 3, 7, 9])
    if checkpointing:
        recompute_layers(model)
    net = HFNet(model, max_context=128)
    at_BM = torch.tensor([[63]] * 5)
    assert trees_of(batch.tokens_BT, at_BM, net.width) is not None
    (shared, logprobs), (apart, expected) = both(model, batch)
    torch.testing.assert_close(logprobs, expected, atol=1e-5, rtol=1e-5)
    for name, value in apart.items():
        assert float((shared[name] - value).abs().max()) < 1e-6, name


def test_a_step_with_trees_moves_the_weights_as_one_without():
    batch = group(60, [5, 9, 3, 7, 9])
    weights = []
    for shares in (True, False):
        train = learner(llama(context=128))
        train.net.shares = shares
        train.step(batch, weighted_likelihood, lr=1e-3)
        weights.append({name: value.copy() for name, value in train.weights().items()})
    assert max(float(np.abs(weights[0][name] - weights[1][name]).max()) for name in weights[0]) < 1e-5


def test_branches_share_with_the_branch_that_they_leave():
    stem = list(range(10, 70))
    rows = [[*stem, 1, 2], [*stem[:40], 3], [*stem[:50], 4, 5, 6], list(range(100, 160))]
    width = max(map(len, rows))
    tokens_BT = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    at_BM = torch.tensor([[len(row) - 1] for row in rows])
    trees = trees_of(tokens_BT, at_BM, 200)
    assert sorted(trees.mask_G1SS[:, 0].any(1).sum(1).tolist()) == [66, 66]  # the second is padded
    assert trees.tokens_GS.shape == (2, 62 + 1 + 3)


@pytest.mark.parametrize(
    ("prompt", "answers"),
    [(2, [60, 60]), (60, [8]), (40, [200] * 6)],
    ids=["little in common", "one row", "answers much longer than what they share"],
)
def test_rows_stay_apart_where_trees_would_not_save(prompt, answers):
    batch = group(prompt, answers)
    at_BM = batch.segment_ids_BT.sum(1, keepdim=True) - 1
    assert trees_of(batch.tokens_BT, at_BM, WIDTH) is None


def test_many_rows_of_one_prompt_become_several_trees():
    """One tree of all would have 8,514 tokens, which is too large, and rows apart 88,200."""
    batch = group(114, [12] * 700)
    trees = trees_of(batch.tokens_BT, batch.segment_ids_BT.sum(1, keepdim=True) - 1, 576)
    assert trees is not None
    count, size = trees.tokens_GS.shape
    assert 4 <= count <= 16
    assert count * size < 88_200 / 6
    assert (trees.at_BM < count * size).all()


def test_where_one_tree_is_too_large_smaller_ones_are_taken():
    batch = group(1000, [500] * 20)
    trees = trees_of(batch.tokens_BT, batch.segment_ids_BT.sum(1, keepdim=True) - 1, 4096)
    assert trees is not None
    assert trees.mask_G1SS.numel() <= 1 << 26


def test_several_trees_give_the_values_of_rows_apart():
    model, batch = llama(context=128).double(), group(60, [9] * 80)
    trees = trees_of(batch.tokens_BT, batch.segment_ids_BT.sum(1, keepdim=True) - 1, model.config.hidden_size)
    assert trees is not None
    assert len(trees.tokens_GS) > 1
    (shared, logprobs), (apart, expected) = both(model, batch)
    torch.testing.assert_close(logprobs, expected, atol=1e-5, rtol=1e-5)
    for name, value in apart.items():
        assert float((shared[name] - value).abs().max() / value.abs().max().clamp_min(1.0)) < 1e-6, name


def test_models_whose_attention_a_mask_does_not_say_keep_their_rows_apart():
    sliding = llama(kind="Mistral", sliding_window=4)
    assert not HFNet(sliding, max_context=64).shares
    eager = llama(attn_implementation="eager")
    assert not HFNet(eager, max_context=64).shares


@given(st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=12), min_size=1, max_size=6), st.randoms())
def test_every_token_sees_its_own_row_and_nothing_else(rows, random):
    width = max(map(len, rows))
    tokens_BT = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    at_BM = torch.tensor([[min(place, len(row) - 1) for place in range(width)] for row in rows])
    order = sorted(range(len(rows)), key=lambda row: tokens_BT[row].numpy().tobytes())
    cut = random.randint(0, len(rows) - 1)
    trees = laid_out(tokens_BT, at_BM, [np.array(part) for part in (order[:cut], order[cut:]) if part])
    size = trees.tokens_GS.shape[1]
    for row, places in zip(rows, trees.at_BM, strict=True):
        for place, at in enumerate(places[: len(row)].tolist()):
            tree, here = divmod(at, size)
            seen = trees.mask_G1SS[tree, 0, here].nonzero()[:, 0]
            seen = seen[trees.places_GS[tree, seen].argsort()]
            assert trees.tokens_GS[tree, seen].tolist() == row[: place + 1]
            assert trees.places_GS[tree, seen].tolist() == list(range(place + 1))
