"""The tiny model: padding, caching and picking positions never change a result."""

import pytest
import torch

from rock_env.errors import InvalidArgument
from trainer.engine.tiny_model import TinyModel, TinyShape

SHAPE = TinyShape(vocabulary=40, layers=3, width=16, heads=2, max_context=24)


@pytest.fixture
def model():
    net = TinyModel(SHAPE, seed=3)
    torch.nn.init.normal_(net.head, std=0.5, generator=torch.Generator().manual_seed(0))
    return net


def rows_of(lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, SHAPE.vocabulary, (length,), generator=generator) for length in lengths]


def every_logit(model, row_T):
    """Return the logits after every position of one unpadded row."""
    return model.logits(model.hidden_at(row_T[None], torch.arange(len(row_T))[None])[0])


def pad(rows, *, left):
    width = max(len(row) for row in rows)
    tokens, mask = (
        torch.zeros(len(rows), width, dtype=torch.int64),
        torch.zeros(len(rows), width, dtype=torch.bool),
    )
    for b, row in enumerate(rows):
        where = slice(width - len(row), width) if left else slice(0, len(row))
        tokens[b, where], mask[b, where] = row, True
    return tokens, mask


def test_a_seed_fixes_the_parameters_and_leaves_torchs_generator_alone():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    one = TinyModel(SHAPE, seed=5)
    assert torch.rand(1) == expected
    two, other = TinyModel(SHAPE, seed=5), TinyModel(SHAPE, seed=6)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(one.embedding, other.embedding)


def test_a_fresh_model_is_the_uniform_policy():
    logits = every_logit(TinyModel(SHAPE), rows_of([5])[0])
    assert torch.equal(logits, torch.zeros_like(logits))


def test_the_future_does_not_change_the_past(model):
    row = rows_of([9])[0]
    changed = row.clone()
    changed[6:] = 1
    torch.testing.assert_close(every_logit(model, row)[:6], every_logit(model, changed)[:6])
    assert not torch.allclose(every_logit(model, row)[6], every_logit(model, changed)[6])


def test_positions_matter(model):
    row = rows_of([6])[0]
    assert not torch.allclose(every_logit(model, row)[-1], every_logit(model, row.flip(0).roll(-1))[-1])


def test_picked_positions_of_padded_rows_equal_those_of_single_rows(model):
    rows = rows_of([5, 9, 7])
    tokens_BT, _ = pad(rows, left=False)
    at_BM = torch.tensor([[4, 1], [8, 0], [6, 6]])
    picked = model.logits(model.hidden_at(tokens_BT, at_BM))
    for b, row in enumerate(rows):
        torch.testing.assert_close(picked[b], every_logit(model, row)[at_BM[b]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lengths", [[6, 6, 6], [5, 9, 7]])
def test_prefill_and_decode_equal_the_full_forward(model, lengths):
    rows = rows_of(lengths)
    tokens_BT, mask_BT = pad(rows, left=True)
    padded = len(set(lengths)) > 1
    logits, cache = model.prefill(tokens_BT, mask_BT if padded else None, room=4)
    for step in range(4):
        for b, row in enumerate(rows):
            torch.testing.assert_close(logits[b], every_logit(model, row)[-1], atol=1e-5, rtol=1e-5)
        new_B = torch.arange(len(rows)) + step
        rows = [torch.cat((row, new)) for row, new in zip(rows, new_B[:, None], strict=True)]
        logits = model.decode(new_B, cache)


@pytest.mark.parametrize("lengths", [[6, 6, 6], [5, 9, 7]])
def test_dropped_rows_do_not_disturb_the_others(model, lengths):
    rows = rows_of(lengths)
    tokens_BT, mask_BT = pad(rows, left=True)
    _, cache = model.prefill(tokens_BT, mask_BT if len(set(lengths)) > 1 else None, room=2)
    cache.keep(torch.tensor([2, 0]))
    logits = model.decode(torch.tensor([3, 4]), cache)
    for b, (row, new) in enumerate(((rows[2], 3), (rows[0], 4))):
        full = every_logit(model, torch.cat((row, torch.tensor([new]))))[-1]
        torch.testing.assert_close(logits[b], full, atol=1e-5, rtol=1e-5)


def test_heads_must_divide_the_width():
    with pytest.raises(InvalidArgument, match="multiple of heads"):
        TinyShape(vocabulary=4, layers=1, width=10, heads=4, max_context=4)
