"""The tiny model: padding, caching and picking positions never change a result."""

import pytest
import torch

from rock_env.errors import InvalidArgument
from trainer.models.tiny.model import TinyModel, TinyShape
from trainer.models.tiny.tokenizer import ASSISTANT, END, NEWLINE, SPECIALS, USER

SHAPE = TinyShape(vocabulary=40, layers=3, width=16, heads=2, max_context=24)


@pytest.fixture
def model():
    net = TinyModel(SHAPE, seed=3)
    torch.nn.init.normal_(net.head, std=0.5, generator=torch.Generator().manual_seed(0))
    return net


def rows_of(lengths, seed=0):
    """Return rows of a chat: a message with a line break, then as much of the answer as fits."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for length in lengths:
        row = torch.randint(SPECIALS, SHAPE.vocabulary, (length,), generator=generator)
        row[0], row[2], row[4] = USER, NEWLINE, ASSISTANT
        rows.append(row)
    return rows


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


def test_a_fresh_model_is_uniform_over_what_may_be_sampled():
    logits = every_logit(TinyModel(SHAPE), rows_of([5])[0])
    assert torch.equal(logits[:, END:], torch.zeros_like(logits[:, END:]))
    assert torch.isneginf(logits[:, :END]).all()


def close(one, other):
    return torch.allclose(one[..., END:], other[..., END:], atol=1e-6)


def test_what_is_sampled_does_not_change_what_came_before(model):
    row = rows_of([9])[0]
    for changed_at in range(5, 9):
        changed = row.clone()
        changed[changed_at] = (row[changed_at] - SPECIALS + 1) % (SHAPE.vocabulary - SPECIALS) + SPECIALS
        before, after = every_logit(model, row), every_logit(model, changed)
        assert close(before[:changed_at], after[:changed_at])
        assert not close(before[changed_at:], after[changed_at:])


def test_a_message_is_read_as_a_whole_and_alone(model):
    """Its tokens see each other both ways, and neither the answer after it nor the next message."""
    two = torch.tensor([USER, 20, 21, ASSISTANT, 22, END, USER, 23, 24, ASSISTANT])
    whole = every_logit(model, two)
    for changed_at, reaches_back_to in [(2, 0), (4, 4), (8, 6)]:
        changed = two.clone()
        changed[changed_at] = 30
        other = every_logit(model, changed)
        same = [close(whole[t], other[t]) for t in range(len(two))]
        assert same == [t < reaches_back_to for t in range(len(two))], changed_at


def test_line_and_column_tell_places_apart(model):
    """The same character at another line or column is another place; an equal page read twice is the same."""
    pages = [[20, NEWLINE, 21, 22], [20, 21, NEWLINE, 22], [20, 22, NEWLINE, 21]]
    answers = [every_logit(model, torch.tensor([USER, *page, ASSISTANT]))[-1] for page in pages]
    assert not close(answers[0], answers[1])
    assert not close(answers[1], answers[2])


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
        new_B = (
            torch.tensor([NEWLINE, 20, END][: len(rows)])
            if step == 1
            else torch.arange(len(rows)) + 10 + step
        )
        rows = [torch.cat((row, new)) for row, new in zip(rows, new_B[:, None], strict=True)]
        logits = model.decode(new_B, cache)


@pytest.mark.parametrize("lengths", [[6, 6, 6], [5, 9, 7]])
def test_dropped_rows_do_not_disturb_the_others(model, lengths):
    rows = rows_of(lengths)
    tokens_BT, mask_BT = pad(rows, left=True)
    _, cache = model.prefill(tokens_BT, mask_BT if len(set(lengths)) > 1 else None, room=2)
    cache.keep(torch.tensor([2, 0]))
    logits = model.decode(torch.tensor([13, 14]), cache)
    for b, (row, new) in enumerate(((rows[2], 13), (rows[0], 14))):
        full = every_logit(model, torch.cat((row, torch.tensor([new]))))[-1]
        torch.testing.assert_close(logits[b], full, atol=1e-5, rtol=1e-5)


def test_heads_must_divide_the_width():
    with pytest.raises(InvalidArgument, match="multiple of heads"):
        TinyShape(vocabulary=4, layers=1, width=10, heads=4, max_context=4)
