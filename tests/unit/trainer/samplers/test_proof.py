"""Digests of weights: equal on both sides, different after every accident, and the tensor is named."""

import numpy as np
import pytest
import torch
from random_models import batch_over, random_model, weights_of

from rock_env.errors import InvalidArgument
from trainer.samplers.proof import arrival_fault, digests, named_tensors


def arrived(batch):
    return digests(named_tensors(batch.model.model))


def test_weights_that_arrived_have_the_senders_digests():
    batch, sent = batch_over(random_model("llama")), weights_of(random_model("llama", 1))
    assert arrival_fault(digests(sent), arrived(batch)) is not None
    batch.load(sent, 1)
    assert arrival_fault(digests(sent), arrived(batch)) is None


def test_digests_in_the_receivers_precision_agree():
    values = {"w": np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)}
    half = {"w": torch.from_numpy(values["w"]).bfloat16()}
    assert digests(values, dtype=torch.bfloat16) == digests(half) != digests(values)


def test_a_corrupted_tensor_and_swapped_elements_are_named():
    batch, sent = batch_over(random_model("llama")), weights_of(random_model("llama", 1))
    batch.load(sent, 1)
    name = list(sent)[4]
    value = named_tensors(batch.model.model)[name].data.view(-1)
    value[3] += 1
    assert arrival_fault(digests(sent), arrived(batch)) == name
    value[3] -= 1
    batch.load(sent, 1)
    value[[0, 1]] = value[[1, 0]]
    assert arrival_fault(digests(sent), arrived(batch)) == name


def test_a_version_without_its_weights_names_the_first_tensor():
    first, second = weights_of(random_model("llama", 1)), weights_of(random_model("llama", 2))
    batch = batch_over(random_model("llama"))
    batch.load(first, 1)
    assert arrival_fault(digests(second), arrived(batch)) == next(iter(second))


def test_a_tied_head_shares_its_digest_and_one_that_is_not_tied_any_more_is_named():
    batch, sent = batch_over(random_model("qwen2 tied")), weights_of(random_model("qwen2 tied", 1))
    batch.load(sent, 1)
    assert "lm_head.weight" not in sent
    assert arrival_fault(digests(sent), arrived(batch)) is None
    head = batch.model.model.lm_head
    head.weight = torch.nn.Parameter(head.weight.detach() + 1)
    assert arrival_fault(digests(sent), arrived(batch)) == "lm_head.weight"
    with pytest.raises(InvalidArgument, match=r"lm_head\.weight"):
        batch.load(sent, 2)
