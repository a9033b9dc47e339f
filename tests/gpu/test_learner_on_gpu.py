"""The learner on one CUDA device: what `benchmarks.gpu_day` measures, held to bounds, with small models.

Without pytest's plugins: `PYTHONPATH=. python -m pytest -c /dev/null --noconftest tests/gpu/test_learner_on_gpu.py`.
"""

import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'ale-rl[train]'")
pytest.importorskip("transformers", reason="needs transformers: pip install 'ale-rl[train]'")

from benchmarks.chips import Day  # noqa: E402
from benchmarks.gpu_learner import CONTEXT, cpu_agreement, net_of, one_rank, one_row, train_of  # noqa: E402
from benchmarks.models import likelihood, qwen3, row  # noqa: E402
from trainer.learners.memory import Shape  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and torch built for it"),
]


def test_loss_and_gradients_are_those_of_the_processor():
    found = cpu_agreement("cuda")
    assert found["gradients_compared"] == 24
    assert found["loss"] < 1e-4
    assert found["gradients"] < 1e-4


def test_fsdp2_with_one_rank_moves_the_weights_as_plain_torch_does():
    found = one_rank("fsdp2", "cuda")
    assert found["moved"] > 1e-3
    assert found["difference"] < 1e-5
    assert found["after_resume"] == 0.0


@pytest.mark.parametrize("lora", [False, True])
def test_an_update_in_half_precision_takes_about_the_memory_of_its_estimate(lora, request):
    if lora:
        request.getfixturevalue("peft")
    config = qwen3("0.6b", CONTEXT)
    config.num_hidden_layers = 4
    train = train_of(net_of(config, "cuda", lora=lora), "cuda")
    train.step(row(64, train.net.vocabulary), likelihood, lr=1e-6)
    trains = sum(value.numel() for _, value in train.net.named_parameters())
    found = one_row(train, Shape.of(config), 4_096, Day("cuda", dry=False), trains if lora else 0)
    assert 0.6 < found["peak_over_estimate"] < 1.4


def test_adapters_alone_move_and_the_host_gets_whole_weights(peft):
    train = train_of(net_of(qwen3("tiny", CONTEXT), "cuda", lora=True), "cuda")
    before = train.weights()
    train.step(row(64, 512), likelihood, lr=1e-3)
    after = train.weights()
    changed = {name for name in before if (before[name] != after[name]).any()}
    assert changed
    assert all(name.endswith("_proj.weight") for name in changed)


@pytest.fixture
def peft():
    return pytest.importorskip("peft", reason="needs peft: pip install 'ale-rl[lora]'")
