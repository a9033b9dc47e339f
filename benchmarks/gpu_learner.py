"""The learner on one device: an update beside plain torch, its memory beside the estimate, ranks beside one process.

Parts of `benchmarks.gpu_day`, which says what their figures mean, and held to bounds by `tests/gpu`. Models have random
weights. In bfloat16, with float32 master weights where all weights train.
"""

from __future__ import annotations

import gc
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.chips import Day
from benchmarks.gpu_sampler import arriving, sampler_memory
from benchmarks.models import batch_of, likelihood, packed_row, qwen3, random_model, row
from benchmarks.parts import Pieces
from rock_env.errors import InvalidArgument
from trainer.data.batch import TrainBatch
from trainer.learners.lora import Adapters
from trainer.learners.memory import Estimate, Shape, UpdatePlan
from trainer.learners.parallel.kinds import parallelism
from trainer.learners.recompute import recompute_layers
from trainer.learners.torch_train import TorchTrain
from trainer.models.hf import AdaptedNet, HFNet
from trainer.protocols.engines import OptimOptions

CONTEXT = 32_768
LENGTHS = {"2k": 2_048, "8k": 8_192, "26k": 26_000}
SHORT_LENGTHS = {"2k": 64, "8k": 128}
STEPS, REPEATS = 20, 3
KINDS = {"full": False, "lora": True}


def net_of(config: Any, device: str, *, lora: bool, half: bool = True, checkpointing: bool = True) -> HFNet:
    """Return a net as the `hf` engine builds it."""
    model = random_model(config, device=device, dtype=torch.bfloat16 if lora and half else torch.float32)
    if checkpointing:
        recompute_layers(model)
    how: Any = {"max_context": CONTEXT, "autocast": torch.bfloat16 if half else None}
    if lora:
        adapters = Adapters.fresh(model, rank=16, alpha=32.0, targets="all-linear", seed=0)
        return AdaptedNet(model, adapters, **how)
    return HFNet(model, **how)


def train_of(net: HFNet, device: str) -> TorchTrain:
    return TorchTrain(net, OptimOptions(), export=lambda folder: None, device=torch.device(device))


class Plain:
    """An update by plain torch: one forward pass over padded sequences, logits of trained tokens, fused AdamW."""

    def __init__(self, net: HFNet, device: str) -> None:
        self._model, self._device = net.model, device
        self._trains = [value for _, value in net.named_parameters()]
        self._optimizer = torch.optim.AdamW(self._trains, lr=1e-6, fused=True)

    def step(self, batch: TrainBatch) -> float:
        counts = torch.unique_consecutive(batch.segment_ids_BT[0], return_counts=True)[1].tolist()
        tokens_ST, mask_ST = (
            torch.nn.utils.rnn.pad_sequence(value[0].split(counts), batch_first=True).to(self._device)
            for value in (batch.tokens_BT, batch.loss_mask_BT)
        )
        with torch.autocast(torch.device(self._device).type, dtype=torch.bfloat16):
            hidden_STD = self._model.base_model(tokens_ST, use_cache=False).last_hidden_state
            logits_NV = self._model.get_output_embeddings()(hidden_STD[:, :-1][mask_ST[:, 1:]])
        loss = torch.nn.functional.cross_entropy(
            logits_NV.float(), tokens_ST[:, 1:][mask_ST[:, 1:]], reduction="sum"
        )
        loss = loss / batch.normalizer
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._trains, 1.0)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())


def learner(day: Day, seconds: float) -> Pieces:
    """Compare updates of both shapes, with all weights and with LoRA."""
    for name in ("smollm2", "qwen3"):
        for kind in KINDS:
            yield f"{name}_{kind}", partial(beside_plain, day, name, lora=KINDS[kind])


def beside_plain(day: Day, name: str, *, lora: bool) -> dict[str, Any]:
    """Time an update of one row, and of a packed one, and plain torch's of the same in turns."""
    config, tokens = day.config(name, CONTEXT), 256 if day.dry else 8_192
    nets = [net_of(config, day.device, lora=lora, checkpointing=False) for _ in range(2)]
    ours, plain = train_of(nets[0], day.device), Plain(nets[1], day.device)
    numbers = sum(value.numel() for value in nets[0].model.parameters())
    found: dict[str, Any] = {"parameters": numbers, "tokens": tokens}
    for kind, make in (("row", row), ("packed", packed_row)):
        batch = make(tokens, config.vocab_size)
        apart = abs(ours.step(batch, likelihood, lr=1e-6)["loss"] - plain.step(batch))
        acts = (lambda: ours.step(batch, likelihood, lr=1e-6), lambda: plain.step(batch))  # noqa: B023
        times = [[day.seconds_of(act) for act in acts] for _ in range(1 if day.dry else REPEATS)]
        mine, theirs = map(min, zip(*times, strict=True))
        needed = (4 if lora else 6) * numbers * tokens
        mfu = round(needed / mine / day.rates[0], 4) if day.rates else None
        told = {"tokens_per_s": round(tokens / mine), "over_plain": round(mine / theirs, 3), "mfu": mfu}
        found |= {f"{kind}_{what}": value for what, value in told.items()}
        found[f"{kind}_loss_apart"] = apart
    return found


def weights(day: Day, seconds: float) -> Pieces:
    """Time the way of an update's weights to a sampler."""
    for kind, lora in KINDS.items():
        yield kind, partial(handed_over, day, lora=lora)


def handed_over(day: Day, *, lora: bool) -> dict[str, Any]:
    """Hand all weights over, adapters added in; of LoRA also bring its adapters alone to the host."""
    net = net_of(day.config("qwen3", CONTEXT), day.device, lora=lora)
    train = train_of(net, day.device)
    train.step(row(64, net.vocabulary), likelihood, lr=1e-4)
    found: dict[str, Any] = {"to_host_s": round(min(day.seconds_of(train.weights) for _ in range(2)), 4)}
    given = dict(train.weights())
    found |= {"gb": round(sum(value.nbytes for value in given.values()) / 1e9, 4), **arriving(day, given)}
    if lora:
        own = [value for _, value in net.named_parameters()]
        found["adapters_gb"] = round(sum(value.nbytes for value in own) / 1e9, 4)
        to_host = min(day.seconds_of(lambda: [value.detach().cpu() for value in own]) for _ in range(2))
        found["adapters_to_host_s"] = round(to_host, 4)
    return found


def memory(day: Day, seconds: float) -> Pieces:
    """Compare the largest memory of updates, and of a sampler, with the estimates."""
    config = day.config("qwen3", CONTEXT)
    for kind, lora in KINDS.items():
        train = train_of(net_of(config, day.device, lora=lora), day.device)
        trains = sum(value.numel() for _, value in train.net.named_parameters())
        train.step(row(64, train.net.vocabulary), likelihood, lr=1e-6)  # the moments are there from now on
        for length, tokens in (SHORT_LENGTHS if day.dry else LENGTHS).items():
            yield (
                f"{kind}_{length}",
                partial(one_row, train, Shape.of(config), tokens, day, trains if lora else 0),
            )
        del train
    yield "sampler", partial(sampler_memory, day)


def one_row(train: TorchTrain, shape: Shape, tokens: int, day: Day, adapters: int) -> dict[str, Any]:
    """Train a row twice; return its largest memory, what was expected, and its speed."""
    batch = row(tokens, train.net.vocabulary)
    trained = int(batch.loss_mask_BT.sum())
    expected = Estimate.of(shape, UpdatePlan(tokens, trained, half=True, adapters=adapters)).total
    gc.collect()
    if day.on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    step_s = min(day.seconds_of(lambda: train.step(batch, likelihood, lr=1e-6)) for _ in range(2))
    found = {"estimate_gb": round(expected / 1e9, 3), "tokens_per_s": round(tokens / step_s)}
    if day.on_gpu:
        peak, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        found |= {"peak_gb": round(peak / 1e9, 3), "reserved_gb": round(reserved / 1e9, 3)}
        found["peak_over_estimate"] = round(peak / expected, 3)
    return found


def ranks(day: Day, seconds: float) -> Pieces:
    """Compare the device with the processor, and learners of one rank with plain torch."""
    yield "cpu", partial(cpu_agreement, day.device)
    for name in ("fsdp2", "zero2"):
        yield name, partial(one_rank, name, day.device, 3 if day.dry else STEPS)


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


def one_rank(name: str, device: str, steps: int = STEPS) -> dict[str, Any]:
    """Return how far the weights of a parallelism's only rank are from plain torch's after the same updates."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh

    from trainer.learners.parallel.base import SpreadNet
    from trainer.learners.ranks.train import RankTrain

    kind, shared = torch.device(device).type, parallelism(name)
    try:
        shared.check()
    except InvalidArgument as error:
        return {"missing": str(error)}
    plain = train_of(HFNet(small(device), max_context=CONTEXT), device)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "gloo" if kind == "cpu" else "nccl", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
        try:
            model = small(device)
            recompute_layers(model)
            mesh = init_device_mesh(kind, (1,))
            whole = HFNet(model, max_context=CONTEXT)
            net = SpreadNet(whole, shared.spread(whole, mesh, OptimOptions(), False), torch.device(device))
            spread = RankTrain(net, OptimOptions(), export=lambda folder: None, device=torch.device(device))
            for step in range(steps):
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
        train = train_of(HFNet(model, max_context=CONTEXT), where)
        return train.step(batch, likelihood, lr=1e-3)["loss"], grads

    (here, mine), (there, theirs) = update("cpu"), update(device)
    scale = max(float(value.abs().max()) for value in mine.values())
    return {
        "loss": abs(here - there) / abs(here),
        "gradients": max(float((mine[name] - theirs[name]).abs().max()) for name in mine) / scale,
        "gradients_compared": len(mine),
    }
