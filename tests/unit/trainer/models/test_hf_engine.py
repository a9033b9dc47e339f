"""The Hugging Face engine over several architectures: ragged batches, tied weights, precision, refusals.

All models are random and built in memory or in a temporary folder; nothing is downloaded.
"""

import numpy as np
import pytest
import torch
import transformers
from random_llama import random_llama
from tokenizers import Tokenizer, models, pre_tokenizers

from agent_runtime.policy import SampleRequest
from agent_runtime.types import SamplingParams
from rock_env.errors import InvalidArgument
from trainer.algo.base import LossOutput
from trainer.data.batch import TrainBatch
from trainer.learners.torch_train import TorchTrain
from trainer.models.hf import ENGINE, HFNet, HFOptions
from trainer.protocols.engines import OptimOptions
from trainer.samplers.generate import TorchInference

SIZE = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
KV = {"num_key_value_heads": 2, "max_position_embeddings": 64, "initializer_range": 0.3}
END = 5

ARCHITECTURES = {
    "llama": lambda: transformers.LlamaConfig(**SIZE, **KV),
    "qwen2 tied": lambda: transformers.Qwen2Config(**SIZE, **KV, tie_word_embeddings=True),
    "qwen3": lambda: transformers.Qwen3Config(**SIZE, **KV, head_dim=8),
    "mistral window": lambda: transformers.MistralConfig(**SIZE, **KV, sliding_window=8),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=96, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3
    ),
    "gpt-neox": lambda: transformers.GPTNeoXConfig(**SIZE, max_position_embeddings=64, initializer_range=0.3),
}


def random_model(config, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.AutoModelForCausalLM.from_config(config)


def requests_of(lengths, **params):
    generator = np.random.default_rng(0)
    how = SamplingParams(**{"max_tokens": 6, **params})
    return [
        SampleRequest(f"r{i}", 0, generator.integers(6, 96, n).astype(np.int32), how, i)
        for i, n in enumerate(lengths)
    ]


def batch_of(requests, completions):
    width = max(len(r.prompt_ids) + len(c.ids) for r, c in zip(requests, completions, strict=True))
    tokens = torch.zeros(len(requests), width, dtype=torch.int64)
    mask, mu = torch.zeros_like(tokens, dtype=torch.bool), torch.zeros(len(requests), width)
    segments = torch.zeros_like(tokens)
    for b, (request, completion) in enumerate(zip(requests, completions, strict=True)):
        start, end = len(request.prompt_ids), len(request.prompt_ids) + len(completion.ids)
        tokens[b, :end] = torch.from_numpy(
            np.concatenate((request.prompt_ids, completion.ids)).astype(np.int64)
        )
        segments[b, :end], mask[b, start:end] = 1, True
        mu[b, start:end] = torch.from_numpy(completion.logprobs)
    rows = torch.arange(len(requests))
    return TrainBatch(
        tokens_BT=tokens,
        segment_ids_BT=segments,
        loss_mask_BT=mask,
        rollout_logprobs_BT=mu,
        prox_logprobs_BT=None,
        advantages_BT=mask.float(),
        positive_BT=mask,
        chunk_index_BT=torch.where(mask, rows[:, None], -1),
        chunks=len(requests),
        trajectory_index_B=rows,
        imitation_BT=torch.zeros(mask.shape),
        policy_version_BT=torch.where(mask, 0, -1),
        normalizer=float(len(requests)),
        imitation_normalizer=1.0,
    )


def likelihood(batch, logprobs_BT):
    return LossOutput(-torch.where(batch.loss_mask_BT, logprobs_BT, 0.0).sum() / batch.normalizer)


@pytest.mark.parametrize("lengths", [[12, 12, 12], [3, 9, 11, 20, 4]], ids=["even", "ragged"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_train_and_inference_agree_after_a_step(name, lengths):
    config = ARCHITECTURES[name]()
    train = TorchTrain(
        HFNet(random_model(config), max_context=64), OptimOptions(), export=lambda folder: None
    )
    inference = TorchInference(HFNet(random_model(config, 1), max_context=64), end_id=END, max_rows=3)
    requests = requests_of(lengths)
    inference.load(train.weights(), 0)
    train.step(batch_of(requests, inference.sample(requests)), likelihood, lr=1e-3)
    inference.load(train.weights(), 1)
    batch = batch_of(requests, inference.sample(requests))
    assert float((train.logprobs(batch) - batch.rollout_logprobs_BT).abs().max()) < 1e-4


def test_rows_that_end_early_leave_the_batch_without_disturbing_it():
    net = HFNet(random_model(ARCHITECTURES["llama"]()), max_context=64)
    requests = [
        SampleRequest(r.rollout_id, 0, r.prompt_ids, SamplingParams(max_tokens=1 + 3 * i), i)
        for i, r in enumerate(requests_of([8, 9, 10, 11]))
    ]
    together = TorchInference(net, end_id=END, max_rows=8).sample(requests)
    alone = TorchInference(net, end_id=END, max_rows=1).sample(requests)
    assert [c.ids.tolist() for c in together] == [c.ids.tolist() for c in alone]


def test_tied_weights_travel_once():
    net = HFNet(random_model(ARCHITECTURES["qwen2 tied"]()), max_context=64)
    names = [name for name, _ in net.named_parameters()]
    assert sum("embed" in name or "head" in name for name in names) == 1


def test_half_precision_computes_close_to_float32_and_keeps_float32_parameters():
    config = ARCHITECTURES["llama"]()
    half = HFNet(random_model(config), max_context=64, autocast=torch.bfloat16)
    full = HFNet(random_model(config), max_context=64)
    tokens, at = torch.arange(6, 18)[None], torch.tensor([[3, 11]])
    one, two = half.logits(half.hidden_at(tokens, at)), full.logits(full.hidden_at(tokens, at))
    assert one.dtype == torch.float32
    error, scale = (one - two).detach().abs().max(), two.detach().abs().max()
    assert 0.0 < float(error) < 0.2 * float(scale)
    assert {value.dtype for _, value in half.named_parameters()} == {torch.float32}


def test_a_model_that_transforms_its_logits_is_refused():
    config = transformers.Gemma2Config(**SIZE, **KV, head_dim=8, final_logit_softcapping=0.5)
    with pytest.raises(InvalidArgument, match="transforms its logits"):
        HFNet(random_model(config), max_context=64)


@pytest.fixture
def folder(tmp_path):
    """A model folder whose tokenizer has no chat template yet."""
    random_model(ARCHITECTURES["llama"]()).save_pretrained(tmp_path)
    words = Tokenizer(models.WordLevel({"<unk>": 0, "user": 1, "assistant": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(tmp_path)
    return tmp_path


def test_a_model_without_a_chat_template_is_refused(folder):
    for template in (ENGINE.template, ENGINE.tools):
        with pytest.raises(InvalidArgument, match="no chat template"):
            template(str(folder), HFOptions())


def test_a_chat_template_without_an_end_token_is_refused(folder):
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }} user {% endfor %}")
    for template in (ENGINE.template, ENGINE.tools):
        with pytest.raises(InvalidArgument, match="without a special token"):
            template(str(folder), HFOptions())


def test_cli_agents_chat_by_the_models_own_template_and_end_where_its_engine_does(tmp_path):
    model = random_llama(tmp_path)
    tools, turns = ENGINE.tools(model, HFOptions(max_context=200)), ENGINE.template(model, HFOptions())
    assert (tools.max_context, tools.end_id) == (200, turns.end_id)
    with pytest.raises(InvalidArgument, match="257 is more than the 256"):
        ENGINE.tools(model, HFOptions(max_context=257))


def test_a_context_beyond_the_models_is_refused(folder):
    with pytest.raises(InvalidArgument, match="65 is more than the 64"):
        ENGINE.train(str(folder), HFOptions(max_context=65), 0, OptimOptions())


def test_the_models_own_context_is_the_default(folder):
    assert ENGINE.train(str(folder), HFOptions(), 0, OptimOptions()).net.max_context == 64


@pytest.mark.parametrize("device", ["cuda:77", "nonsense"])
def test_a_device_that_is_not_there_is_refused(folder, device):
    with pytest.raises(InvalidArgument, match="cannot use device"):
        ENGINE.train(str(folder), HFOptions(device=device), 0, OptimOptions())


def test_a_damaged_model_is_one_clear_error(folder):
    (folder / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InvalidArgument, match="cannot load model"):
        ENGINE.train(str(folder), HFOptions(), 0, OptimOptions())
