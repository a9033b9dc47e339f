"""Random Transformers models of several architectures, and requests for them. Nothing is downloaded."""

from __future__ import annotations

import copy

import numpy as np
import torch
import transformers

from agent_runtime.policy import SampleRequest
from agent_runtime.types import SamplingParams
from trainer.samplers.hf.continuous import Bounds, ContinuousBatch
from trainer.samplers.hf.ragged import RaggedModel

END = 5
CONTEXT = 192
SIZE = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
KV = {"num_key_value_heads": 2, "max_position_embeddings": CONTEXT, "initializer_range": 0.3}
ARCHITECTURES = {
    "llama": lambda: transformers.LlamaConfig(**SIZE, **KV),
    "qwen2 tied": lambda: transformers.Qwen2Config(**SIZE, **KV, tie_word_embeddings=True),
    "qwen3": lambda: transformers.Qwen3Config(**SIZE, **KV, head_dim=8),
    "mistral window": lambda: transformers.MistralConfig(**SIZE, **KV, sliding_window=8),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=96, n_positions=CONTEXT, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3
    ),
    "gpt-neox": lambda: transformers.GPTNeoXConfig(
        **SIZE, max_position_embeddings=CONTEXT, initializer_range=0.3
    ),
}


def random_model(name, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.AutoModelForCausalLM.from_config(ARCHITECTURES[name]()).eval()


def batch_over(model, *, text=None, **bounds):
    """Return a batch over a copy of the model."""
    ragged = RaggedModel(copy.deepcopy(model), max_context=CONTEXT)
    return ContinuousBatch(ragged, end_id=END, bounds=Bounds(**bounds), text=text)


def request(ids, name="r", *, turn=0, seed=1, stop=(), **params):
    how = SamplingParams(**{"max_tokens": 12, **params})
    return SampleRequest(name, turn, np.asarray(ids, np.int32), how, seed, stop)


def ids_of(count, seed=0):
    return np.random.default_rng(seed).integers(6, 96, count).astype(np.int32)


def run(batch, *requests, load=None):
    """Answer requests that come at once; return the outcomes in order. `load`: (after step, weights, version)."""
    tickets = [batch.submit(one) for one in requests]
    outcomes, steps = {}, 0
    while len(outcomes) < len(tickets):
        outcomes.update(batch.step())
        steps += 1
        if load is not None and steps == load[0]:
            batch.load(load[1], load[2])
    return [outcomes[ticket] for ticket in tickets]


@torch.no_grad()
def full_forward(model, prompt, ids):
    """Return log pi of each of `ids` after the prompt, by one forward of the untouched model."""
    tokens = torch.from_numpy(np.concatenate((prompt, ids)).astype(np.int64))[None]
    logprobs = torch.log_softmax(model(input_ids=tokens).logits[0].float(), -1)
    picked = logprobs[len(prompt) - 1 : -1].gather(1, tokens[0, len(prompt) :, None])
    return picked[:, 0].numpy()


def weights_of(model):
    return {name: value.detach().numpy().copy() for name, value in model.named_parameters()}
