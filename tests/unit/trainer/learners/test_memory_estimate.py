"""The estimate of a learner's memory: what it counts, how it grows, and that a real update takes about as much."""

import subprocess
import sys

import pytest
import transformers

from trainer.learners.memory import HEAD_ELEMENTS, LIBRARIES, Estimate, Shape, UpdatePlan

QWEN3 = transformers.Qwen3Config(
    vocab_size=151_936,
    hidden_size=1_024,
    intermediate_size=3_072,
    num_hidden_layers=28,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=128,
    tie_word_embeddings=True,
)
"""Qwen3-0.6B."""


@pytest.fixture(scope="module")
def shape():
    return Shape.of(QWEN3)


def total(shape, tokens=26_000, **plan):
    return Estimate.of(shape, UpdatePlan(tokens, tokens // 4, **plan)).total


def test_a_shape_is_that_of_the_model(shape):
    assert shape.parameters == 596_049_920
    assert (shape.layers, shape.width, shape.attention, shape.queries) == (28, 1_024, 4_096, 2_048)


def test_all_weights_cost_sixteen_bytes_and_adapters_little(shape):
    full, lora = (
        Estimate.of(shape, UpdatePlan(1, 1, half=True, adapters=adapters)) for adapters in (0, 10_000_000)
    )
    assert full.weights + full.gradients + full.moments == 16 * shape.parameters
    assert lora.weights == 2 * shape.parameters + 4 * 10_000_000
    assert lora.gradients + lora.moments == 12 * 10_000_000


def test_memory_is_linear_in_tokens_and_checkpointing_cuts_its_slope(shape):
    for plan in ({"half": True}, {"half": True, "checkpointing": False}):
        growth = total(shape, 48_000, **plan) - total(shape, 32_000, **plan)
        assert growth == pytest.approx(total(shape, 64_000, **plan) - total(shape, 48_000, **plan), rel=0.01)
    assert total(shape, half=True) < 0.3 * total(shape, half=True, checkpointing=False)


def test_ranks_share_weights_gradients_and_moments(shape):
    one, four = (Estimate.of(shape, UpdatePlan(1_000, 500, ranks=ranks)) for ranks in (1, 4))
    assert four.weights + four.gradients + four.moments == 4 * shape.parameters
    assert four.kept == one.kept


def test_the_table_ends_with_the_total(shape):
    lines = Estimate.of(shape, UpdatePlan(26_000, 6_500, half=True)).lines()
    assert len(lines) == 8
    assert lines[-1].split()[0] == "total"


MEASURED = """
import pathlib, re
import torch
from benchmarks.models import likelihood, row, smol
from trainer.protocols.engines import OptimOptions
from trainer.models.hf import HFNet
from trainer.learners.torch_train import TorchTrain
from trainer.learners.recompute import recompute_layers
def peak():  # ru_maxrss would begin with that of whoever started this process
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
before = peak()
model = smol(2)
recompute_layers(model)
train = TorchTrain(HFNet(model, max_context=8192), OptimOptions(), export=lambda folder: None)
train.step(row(2048, 49152), likelihood, lr=1e-6)
print((peak() - before) * 1024)
"""


@pytest.mark.slow
def test_an_update_takes_about_what_was_estimated():
    """On the processor, in a process of its own: what it grows by, from before the model was there."""
    from benchmarks.models import smol

    found = subprocess.run([sys.executable, "-c", MEASURED], check=True, capture_output=True, text=True)
    expected = Estimate.of(Shape.of(smol(2).config), UpdatePlan(2_048, 512)).total
    assert 0.6 < int(found.stdout) / expected < 1.5


def test_on_a_processor_libraries_and_what_malloc_keeps_count(shape):
    plans = [UpdatePlan(8_000, 100, checkpointing=each) for each in (False, True)]
    plain, again = (Estimate.of(shape, plan).on_processor(shape, plan, text=1_000) for plan in plans)
    assert plain["libraries"] == again["libraries"] == LIBRARIES
    assert plain["allocator"] == 0
    assert again["layers"] + again["allocator"] < plain["layers"]
    assert plain["logits"] >= 2 * 4 * min(1_000, HEAD_ELEMENTS // shape.vocabulary) * shape.vocabulary
    assert plain["weights"] + plain["moments"] == 12 * shape.parameters


def test_of_large_blocks_malloc_keeps_nothing(shape):
    """Blocks of the MLP's width are 4 MiB from 342 tokens on, those of the model's width from 1,024."""

    def kept(tokens):
        plan = UpdatePlan(tokens, tokens, adapters=10_000_000)
        return Estimate.of(shape, plan).on_processor(shape, plan, text=1)["allocator"] / tokens

    merged = 4 * shape.parameters
    assert kept(1_100) * 1_100 < merged  # made of what the layers took
    assert kept(300) > kept(400) > kept(1_100)


GIVEN_BACK = """
import pathlib, re
import torch
from trainer.learners.recompute import GIVEN_BACK, give_blocks_back
def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1]) * 1024
give_blocks_back()
before, kept = resident(), []
blocks = [torch.ones(GIVEN_BACK // 4)]
for _ in range(100):
    blocks.pop()
    blocks.append(torch.ones(GIVEN_BACK // 4))  # what was freed before it changes nothing
for _ in range(100):
    blocks.append(torch.ones(GIVEN_BACK // 4))
    kept.append(torch.ones(1 << 16))
blocks.clear()
print((resident() - before) / GIVEN_BACK)
"""


def test_blocks_between_what_stays_go_back():
    found = subprocess.run([sys.executable, "-c", GIVEN_BACK], check=True, capture_output=True, text=True)
    assert float(found.stdout) < 30  # of a hundred; what stays is six
