"""LoRA adapters: what trains, what a sampler gets, what a checkpoint holds, and that peft reads what is exported."""

import numpy as np
import pytest
import torch
import transformers
from learner_cases import rows_of, weighted_likelihood
from random_llama import random_llama
from safetensors import safe_open

from agent_runtime.policy import SampleRequest
from agent_runtime.types import SamplingParams
from rock_env.errors import InvalidArgument
from trainer.learners.lora import ADAPTER_FOLDER
from trainer.learners.torch_train import STATE_FILE
from trainer.models.hf import ENGINE, HFOptions
from trainer.protocols.engines import OptimOptions

peft = pytest.importorskip("peft", reason="needs peft: pip install 'ale-rl[lora]'")

BATCH = rows_of([24, 17, 30], vocabulary=256)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return random_llama(tmp_path_factory.mktemp("llama"))


def learner(folder, seed=0, **options):
    return ENGINE.train(folder, HFOptions(**{"lora_rank": 4, **options}), seed, OptimOptions())


def moved(train, steps=3):
    for _ in range(steps):
        train.step(BATCH, weighted_likelihood, lr=1e-2)
    return train


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=BATCH.tokens_BT).logits


def test_adapters_begin_as_the_model_and_alone_are_trained(folder):
    plain, adapted = learner(folder, lora_rank=0), learner(folder)
    assert torch.equal(plain.logprobs(BATCH), adapted.logprobs(BATCH))
    names = [name for name, _ in adapted.net.named_parameters()]
    assert names
    assert all(".lora_A." in name or ".lora_B." in name for name in names)
    before = adapted.weights()
    moved(adapted)
    after = adapted.weights()
    assert after.keys() == plain.weights().keys()
    changed = {name for name in after if not np.array_equal(before[name], after[name])}
    assert changed == {n for n in after if n.endswith("_proj.weight")}


def test_a_sampler_with_the_merged_weights_says_what_the_learner_says(folder):
    train = moved(learner(folder))
    sampler = ENGINE.inference(folder, HFOptions(), 0)
    sampler.load(train.weights(), 1)
    ids = BATCH.tokens_BT[0, :12].numpy().astype(np.int32)
    (answer,) = sampler.sample([SampleRequest("r", 0, ids, SamplingParams(max_tokens=8), 0)])
    row = torch.from_numpy(np.concatenate((ids, answer.ids)).astype(np.int64))[None]
    hidden = train.net.hidden_at(row, torch.arange(row.shape[1])[None])[0]
    scores = torch.log_softmax(train.net.logits(hidden), -1)[11:-1]
    learned = scores.gather(1, row[0, 12:, None])[:, 0].detach().numpy()
    assert np.abs(learned - answer.logprobs).max() < 1e-4


def test_peft_reads_the_exported_adapter_and_gives_the_same_logits(folder, tmp_path):
    train = moved(learner(folder, lora_targets="q_proj,down_proj"))
    train.export(tmp_path)
    base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    loaded = peft.PeftModel.from_pretrained(base, tmp_path / ADAPTER_FOLDER)
    assert torch.equal(logits(loaded), logits(train.net.model))
    whole = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    torch.testing.assert_close(logits(whole), logits(train.net.model), atol=1e-4, rtol=1e-4)


def test_an_exported_adapter_is_trained_on(folder, tmp_path):
    train = moved(learner(folder))
    train.export(tmp_path)
    again = learner(folder, lora_rank=0, adapter=str(tmp_path / ADAPTER_FOLDER))
    assert torch.equal(again.logprobs(BATCH), train.logprobs(BATCH))
    before = again.logprobs(BATCH)
    assert not torch.equal(moved(again, 1).logprobs(BATCH), before)


def test_checkpoints_hold_the_adapters_alone_and_resume_bit_for_bit(folder, tmp_path):
    train = moved(learner(folder))
    train.save(tmp_path)
    with safe_open(tmp_path / STATE_FILE, framework="pt") as file:
        names = list(file.keys())
    assert names
    assert all(".lora_" in name for name in names)
    resumed = learner(folder, seed=7)
    resumed.load(tmp_path)
    for engine in (train, resumed):
        moved(engine, 2)
    assert all(np.array_equal(train.weights()[n], resumed.weights()[n]) for n in train.weights())


def test_another_version_is_asked_without_a_trace(folder):
    train = learner(folder)
    old, expected = train.weights(), train.logprobs(BATCH)
    old = {name: value.copy() for name, value in old.items()}
    moved(train)
    now, weights = train.logprobs(BATCH), train.weights()
    torch.testing.assert_close(train.logprobs(BATCH, old), expected, atol=1e-5, rtol=1e-5)
    assert not torch.equal(now, expected)
    assert torch.equal(train.logprobs(BATCH), now)
    assert all(np.array_equal(value, weights[name]) for name, value in train.weights().items())
    with pytest.raises(InvalidArgument, match="do not belong to this model"):
        train.logprobs(BATCH, {"other": np.zeros(1, np.float32)})
    assert any(value.requires_grad for _, value in train.net.named_parameters())


def test_the_frozen_part_has_half_precision_and_what_trains_has_not(folder):
    train = learner(folder, dtype="bfloat16", checkpointing=True)
    assert {value.dtype for _, value in train.net.named_parameters()} == {torch.float32}
    frozen = {v.dtype for v in train.net.model.parameters() if not v.requires_grad}
    assert frozen == {torch.bfloat16}
    before = train.logprobs(BATCH)
    assert not torch.equal(moved(train, 1).logprobs(BATCH), before)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"lora_rank": 0, "lora_alpha": 8.0}, "do nothing without lora_rank"),
        ({"adapter": "somewhere"}, "brings its own rank"),
    ],
)
def test_options_that_could_do_nothing_are_refused(folder, options, error):
    with pytest.raises(ValueError, match=error):
        learner(folder, **options)


def test_targets_and_folders_that_do_not_fit_are_refused(folder, tmp_path):
    with pytest.raises(InvalidArgument, match="lora_targets='nowhere'"):
        learner(folder, lora_targets="nowhere")
    with pytest.raises(InvalidArgument, match="holds no adapter"):
        learner(folder, lora_rank=0, adapter=str(tmp_path))
