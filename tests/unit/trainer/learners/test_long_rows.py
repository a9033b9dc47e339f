"""What makes long rows fit changes no gradient: recomputed layers, logits in pieces, rows in parts."""

import pytest
import torch
from learner_cases import gradients, learner, llama, rows_of, weighted_likelihood
from torch import nn
from torch.utils import checkpoint

from rock_env.errors import InvalidArgument
from trainer.learners import head
from trainer.learners.recompute import layers_of, recompute_layers
from trainer.models.hf import HFOptions

LENGTHS = [40, 9, 23, 40, 17]


def difference(one, two):
    """Return the largest difference, as a share of the largest number where that is above 1."""
    assert one.keys() == two.keys()
    scale = max(1.0, *(float(value.abs().max()) for value in one.values()))
    return max(float((one[name] - two[name]).abs().max()) for name in one) / scale


def changed(model):
    """Return how far one update moves, with the model it moved."""
    train = learner(model, microbatch_tokens=64)
    train.step(rows_of(LENGTHS), weighted_likelihood, lr=1e-3)
    return {name: value.detach() for name, value in train.net.named_parameters()}


@pytest.mark.parametrize("kind", ["Llama", "Qwen3", "Qwen2"])
def test_recomputed_layers_change_no_gradient(kind):
    plain, again = llama(kind=kind), llama(kind=kind)
    recompute_layers(again)
    batch = rows_of(LENGTHS)
    expected, found = gradients(learner(plain), batch), gradients(learner(again), batch)
    assert len(expected) > 20
    assert difference(expected, found) <= 1e-6
    assert difference(changed(plain), changed(again)) <= 1e-5


def test_a_recomputed_layer_keeps_its_input_and_little_else():
    def kept(model):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: (sizes.append(t.numel()), t)[1], lambda t: t):
            learner(model)._finite(rows_of([40] * 4))
        return sum(sizes)

    plain, again = llama(num_hidden_layers=6), llama(num_hidden_layers=6)
    recompute_layers(again)
    assert kept(again) < 0.3 * kept(plain)


def test_layers_run_once_where_nobody_asks_for_a_gradient(monkeypatch):
    again = llama()
    recompute_layers(again)
    monkeypatch.setattr(checkpoint, "checkpoint", None)
    calls = []
    monkeypatch.setattr("trainer.learners.recompute.checkpoint", lambda *given, **named: calls.append(given))
    learner(again).logprobs(rows_of([9]))
    assert calls == []


def test_logits_in_pieces_change_no_gradient(monkeypatch):
    batch = rows_of(LENGTHS, trained=8)
    expected = gradients(learner(llama()), batch)
    moved = changed(llama())
    monkeypatch.setattr(head, "HEAD_ELEMENTS", 3 * 96)
    assert difference(expected, gradients(learner(llama()), batch)) <= 1e-6
    assert difference(moved, changed(llama())) <= 1e-5


def test_the_logits_of_a_row_are_never_held_whole(monkeypatch):
    monkeypatch.setattr(head, "HEAD_ELEMENTS", 4 * 96)
    train = learner(llama())
    heads = []
    whole = train.net.logits
    train.net.logits = lambda hidden: (heads.append(len(hidden)), whole(hidden))[1]
    train.step(rows_of([40], trained=39), weighted_likelihood, lr=1e-3)
    assert max(heads) == 4
    assert sum(heads) == 2 * 39  # forward, and again in the backward pass


def test_a_model_without_layers_of_its_own_cannot_recompute_them():
    with pytest.raises(InvalidArgument, match="Sequential does not say what its layers are"):
        layers_of(nn.Sequential(nn.Linear(2, 2)))


def test_checkpointing_is_an_option_of_the_engine():
    assert HFOptions().checkpointing == "auto"
    assert [HFOptions(checkpointing=each).checkpointing for each in (False, True)] == [False, True]
