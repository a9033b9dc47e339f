"""A completion whose weights change after its ninth token: sampler, record, batch and pi_old, token by token."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import count

import numpy as np
import torch
import transformers
from algo_reference import trajectory
from random_models import CONTEXT, KV, SIZE, batch_over, full_forward, ids_of, request, weights_of

from agent_runtime.store import decode, encode
from trainer.algo.base import Credit
from trainer.data.build import build_batch
from trainer.learners.torch_train import TorchTrain
from trainer.learners.versions import Versions
from trainer.models.hf import HFNet
from trainer.protocols.engines import OptimOptions
from trainer.samplers.named import Named

CHANGE, COUNT = 9, 24


def model_of(seed):
    """Return a model whose log-probabilities are of the size of a trained one's: rounding grows with them."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = transformers.LlamaConfig(**SIZE, **{**KV, "initializer_range": 0.15})
        return transformers.AutoModelForCausalLM.from_config(config).eval()


def sampled_over_a_change(old, new):
    """Return a request and its answer of 24 tokens, between whose 9th and 10th version 7 took the place of 6."""
    batch = batch_over(old)
    batch.load(weights_of(old), 6)
    for seed in range(100):
        one, outcomes = request(ids_of(20), max_tokens=COUNT, seed=seed), {}
        batch.load(weights_of(old), 6)
        ticket = batch.submit(one)
        while not outcomes:
            outcomes.update(batch.step())
            if int(batch._rows.length_S[0]) - 20 == CHANGE and batch.version == 6:
                batch.load(weights_of(new), 7)
        if len(outcomes[ticket].ids) == COUNT:
            return one, outcomes[ticket], batch
    raise AssertionError("no answer is long enough")


def test_every_token_is_recorded_batched_and_recomputed_under_its_own_version():
    old, new = model_of(0), model_of(1)
    one, sampled, batch = sampled_over_a_change(old, new)
    named = Named("hf", batch)
    named.take(6)
    since = named.loads
    named.take(7)
    completion = named.checked(sampled, one, since)
    assert completion.policy_version == ((6, CHANGE), (7, COUNT - CHANGE))

    made = trajectory("a", [COUNT], 1.0, ids=count())
    turn = replace(
        made.turns[0],
        context_ids=one.prompt_ids,
        completion_ids=completion.ids,
        logprobs=completion.logprobs,
        policy_version=completion.policy_version,
    )
    record = decode(encode(replace(made, turns=(turn,))))
    made, _ = build_batch([record], [Credit(np.ones(1), True, np.zeros(1))], token_budget=COUNT)
    assert made.policy_version_BT[made.loss_mask_BT].tolist() == [6] * CHANGE + [7] * (COUNT - CHANGE)

    versions = Versions(2)
    for version, model in ((6, old), (7, new)):
        versions.add(version, weights_of(model))

    def ask(part, weights):
        model = copy.deepcopy(old)
        with torch.no_grad():
            for name, value in model.named_parameters():
                value.copy_(torch.from_numpy(weights[name]))
        net = HFNet(model, max_context=CONTEXT)
        return TorchTrain(net, OptimOptions(), export=lambda folder: None).logprobs(part)

    pi_old_N = versions.logprobs(made, ask)[made.loss_mask_BT].numpy()
    spans = (slice(0, CHANGE), old), (slice(CHANGE, COUNT), new)
    wanted_N = np.concatenate(
        [full_forward(model, one.prompt_ids, sampled.ids)[at] for at, model in spans]
    )  # Transformers itself, under each version
    np.testing.assert_allclose(record.turns[0].logprobs, wanted_N, atol=2e-6, rtol=0)
    np.testing.assert_allclose(pi_old_N, wanted_N, atol=2e-6, rtol=0)
    for model in (old, new):  # either version alone is far from it
        assert np.abs(full_forward(model, one.prompt_ids, sampled.ids) - wanted_N).max() > 0.1
