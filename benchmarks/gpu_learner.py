"""The learner on one GPU: memory against its estimate, tokens a second, FSDP2 against plain torch, CUDA against the CPU.

`python -m benchmarks.gpu_learner [--device cuda] [--tiny] [--seconds 140]`. The model has Qwen3-0.6B's shape and random
weights; nothing is downloaded. Rows of 2,048, 8,192 and 26,000 tokens, the last quarter of which trains, in bfloat16 with
float32 master weights, `checkpointing` and logits in pieces; once with all weights and once with LoRA of rank 16. Needs
torch, transformers, peft, numpy, safetensors, pydantic and msgspec. `--device cpu --tiny` tries the same code anywhere.

A part that fails is reported and the others go on; a part that would begin after `--seconds` is left out and said. Each part
prints a line as it ends. The last line is one JSON object of all parts:

- `train/full_2k` and so on: `peak_gb` (largest memory that torch had allocated, 10^9 bytes), `estimate_gb`, their ratio
  `peak_over_estimate`, `tokens_per_s` of an update with its optimizer step (the whole row counts), `step_s`;
- `weights_s`: the time to hand all weights to the host, which every update ends with;
- `fsdp2/difference`: the largest difference in any weight after 20 updates of a small model, FSDP2 with one rank against
  plain torch on the same device (goal: at most 1e-5);
- `cpu_agreement`: the largest difference of a float32 update's loss and gradients from the CPU's, as a share of the
  largest gradient (goal: at most 1e-4).
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
import transformers

from benchmarks.models import attempt, batch_of, likelihood, qwen3, random_model, row
from benchmarks.scaffold import finish, parser_of
from trainer.data.batch import TrainBatch
from trainer.learners.lora import Adapters
from trainer.learners.memory import Estimate, Shape, UpdatePlan
from trainer.learners.recompute import recompute_layers
from trainer.learners.torch_train import TorchTrain
from trainer.models.hf import AdaptedNet, HFNet
from trainer.protocols.engines import OptimOptions

CONTEXT = 32_768
LENGTHS = {"2k": 2_048, "8k": 8_192, "26k": 26_000}
SHORT_LENGTHS = {"2k": 64, "8k": 128, "26k": 256}
STEPS = 20


def learner(config: Any, device: str, *, lora: bool, half: bool = True) -> TorchTrain:
    """Return a learner as the `hf` engine builds it with `checkpointing`."""
    dtype = torch.bfloat16 if lora and half else torch.float32
    model = random_model(config, device=device, dtype=dtype)
    recompute_layers(model)
    how: Any = {"max_context": CONTEXT, "autocast": torch.bfloat16 if half else None}
    net = HFNet(model, **how)
    if lora:
        net = AdaptedNet(
            model, Adapters.fresh(model, rank=16, alpha=32.0, targets="all-linear", seed=0), **how
        )
    return TorchTrain(net, OptimOptions(), export=lambda folder: None, device=torch.device(device))


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def train_rows(
    config: Any, device: str, lengths: dict[str, int], *, lora: bool, late: Callable[[], bool]
) -> dict[str, Any]:
    """Train one row of each length; return peak memory, its estimate and the speed of each."""
    train = learner(config, device, lora=lora)
    shape = Shape.of(config)
    adapters = sum(value.numel() for _, value in train.net.named_parameters()) if lora else 0
    train.step(row(64, train.net.vocabulary), likelihood, lr=1e-6)  # the moments are there from now on
    found: dict[str, Any] = {}
    for name, tokens in lengths.items():
        if late():
            found[name] = {"left_out": "no time left"}
            continue
        found[name] = one_row(train, shape, tokens, device, adapters)
    began = perf_counter()
    weights = train.weights()
    found["weights_s"] = round(perf_counter() - began, 3)
    found["weights"] = len(weights)
    return found


def one_row(train: TorchTrain, shape: Shape, tokens: int, device: str, adapters: int) -> dict[str, Any]:
    batch = row(tokens, train.net.vocabulary)
    trained = int(batch.loss_mask_BT.sum())
    estimate = Estimate.of(shape, UpdatePlan(tokens, trained, half=True, adapters=adapters))
    losses, seconds = [], []
    if device != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        wait(device)
        began = perf_counter()
        losses.append(train.step(batch, likelihood, lr=1e-6)["loss"])
        wait(device)
        seconds.append(perf_counter() - began)
    peak = torch.cuda.max_memory_allocated() if device != "cpu" else 0
    return {
        "peak_gb": round(peak / 1e9, 3),
        "reserved_gb": round(torch.cuda.max_memory_reserved() / 1e9, 3) if device != "cpu" else 0.0,
        "estimate_gb": round(estimate.total / 1e9, 3),
        "peak_over_estimate": round(peak / estimate.total, 3),
        "step_s": round(min(seconds), 4),
        "tokens_per_s": round(tokens / min(seconds)),
        "loss": round(losses[-1], 5),
        "parts_gb": {part: round(getattr(estimate, part) / 1e9, 2) for part in Estimate.__slots__},
    }


def small(device: str, *, seed: int = 0) -> Any:
    """Build a small model with weights that say something."""
    return random_model(qwen3("tiny", CONTEXT, initializer_range=0.1), seed=seed).to(device)


def ragged(seed: int) -> TrainBatch:
    """Return a batch of rows of uneven lengths, the last fifth of each trained."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(5, 60, (5,), generator=generator)
    place = torch.arange(int(lengths.max()))
    real = place < lengths[:, None]
    mask = real & (place >= lengths[:, None] * 4 // 5)
    tokens = torch.randint(1, 512, real.shape, generator=generator)
    return batch_of(torch.where(real, tokens, 0), mask, segment_ids_BT=real.long())


def fsdp2(device: str) -> dict[str, float]:
    """Return how far FSDP2's weights are from plain torch's after the same updates."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from trainer.learners.parallel.base import SpreadNet
    from trainer.learners.parallel.fsdp2 import PARALLELISM
    from trainer.learners.ranks.train import RankTrain

    kind = torch.device(device).type
    plain = TorchTrain(
        HFNet(small(device), max_context=CONTEXT),
        OptimOptions(),
        export=lambda folder: None,
        device=torch.device(device),
    )
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "gloo" if kind == "cpu" else "nccl", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
        try:
            model = small(device)
            recompute_layers(model)
            mesh = init_device_mesh(kind, (1,))
            whole = HFNet(model, max_context=CONTEXT)
            net = SpreadNet(
                whole, PARALLELISM.spread(whole, mesh, OptimOptions(), False), torch.device(device)
            )
            spread = RankTrain(net, OptimOptions(), export=lambda folder: None, device=torch.device(device))
            for step in range(STEPS):
                batch = ragged(step)
                plain.step(batch, likelihood, lr=1e-4)
                spread.learn([batch], likelihood, lr=1e-4)
            one, two = plain.weights(), spread.weights()
            before = dict(HFNet(small("cpu"), max_context=CONTEXT).named_parameters())
            spread.save(Path(folder))
            spread.load(Path(folder))
            again = spread.weights()
        finally:
            dist.destroy_process_group()
    moved = max(float(abs(one[n] - before[n].detach().numpy()).max()) for n in one)
    return {
        "difference": max(float(abs(one[name] - two[name]).max()) for name in one),
        "moved": moved,
        "after_resume": max(float(abs(again[name] - two[name]).max()) for name in two),
    }


def cpu_agreement(device: str) -> dict[str, float]:
    """Return how far loss and gradients of a float32 update on the device are from the CPU's."""
    batch = ragged(0)

    def update(where: str) -> tuple[float, dict[str, torch.Tensor]]:
        model = small(where)
        recompute_layers(model)
        grads: dict[str, torch.Tensor] = {}
        for name, value in model.named_parameters():
            value.register_post_accumulate_grad_hook(
                lambda value, name=name: grads.update({name: value.grad.detach().cpu().clone()})
            )
        train = TorchTrain(
            HFNet(model, max_context=CONTEXT),
            OptimOptions(),
            export=lambda folder: None,
            device=torch.device(where),
        )
        return train.step(batch, likelihood, lr=1e-3)["loss"], grads

    (here, mine), (there, theirs) = update("cpu"), update(device)
    scale = max(float(value.abs().max()) for value in mine.values())
    return {
        "loss": abs(here - there) / abs(here),
        "gradients": max(float((mine[name] - theirs[name]).abs().max()) for name in mine) / scale,
        "gradients_compared": len(mine),
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=140.0)
    arguments = parser.parse_args()
    device: str = arguments.device
    if device != "cpu" and not torch.cuda.is_available():
        sys.exit(
            "no CUDA device: run with --device cpu --tiny to try the code, or on a machine that has one."
        )
    began = perf_counter()
    config, lengths = (
        qwen3("tiny" if arguments.tiny else "0.6b", CONTEXT),
        SHORT_LENGTHS if arguments.tiny else LENGTHS,
    )
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device != "cpu" else f"cpu, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }

    def late() -> bool:
        return perf_counter() - began > float(arguments.seconds)

    attempt(results, "cpu_agreement", lambda: cpu_agreement(device))
    attempt(results, "fsdp2", lambda: fsdp2(device))
    for kind in ("full", "lora"):
        train = partial(train_rows, config, device, lengths, lora=kind == "lora", late=late)
        attempt(results, f"train_{kind}", train)
    results["seconds"] = round(perf_counter() - began, 1)
    finish(results)


if __name__ == "__main__":
    main()
