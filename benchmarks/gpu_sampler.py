"""The hf sampler on one device: tokens/s beside the memory's bandwidth, weights that arrive, sleep, memory.

Parts of `benchmarks.gpu_day`, which says what their figures mean. Models have random weights in bfloat16. What is measured
of `hf` is measured of any `SteppedBatch`, so that vLLM stands beside it. Exactness is `tests/gpu`'s.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np
import torch

from agent_runtime.policy import SampleRequest
from agent_runtime.types import SamplingParams
from benchmarks.chips import Day
from benchmarks.models import random_model
from benchmarks.parts import Pieces
from benchmarks.sampler_scenarios import Sizes, both_scenarios
from trainer.protocols.net import copy_weights
from trainer.samplers.hf.continuous import Bounds, ContinuousBatch
from trainer.samplers.hf.ragged import RaggedModel
from trainer.samplers.proof import arrival_fault, digests, named_tensors
from trainer.samplers.threaded import ThreadedSampler

CONTEXT = 4_096
NEVER = -1
"""No end token: answers end by their length."""
HALF = torch.bfloat16


def model_of(day: Day, name: str = "qwen3") -> Any:
    return random_model(day.config(name, CONTEXT), device=day.device, dtype=HALF).eval()


def batch_of(model: Any, *, graphs: bool = True, **bounds: int) -> ContinuousBatch:
    return ContinuousBatch(
        RaggedModel(model, max_context=CONTEXT), end_id=NEVER, bounds=Bounds(**bounds), graphs=graphs
    )


def bytes_of(model: Any) -> int:
    return sum(value.numel() * value.element_size() for value in model.parameters())


def ids(vocabulary: int, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, vocabulary, count).astype(np.int32)


def submit(batch: Any, rows: int, prompt: int, answer: int) -> None:
    """Let requests wait whose prompts share nothing; each model here knows 512 ids or more."""
    for seed in range(rows):
        params = SamplingParams(max_tokens=answer)
        batch.submit(SampleRequest(f"r{seed}", 0, ids(512, prompt, seed), params, seed))


def decode(day: Day, batch: Any, rows: int, prompt: int, answer: int) -> float:
    """Return the seconds of a decoding step: the mean of all but the first, which reads the prompts."""
    submit(batch, rows, prompt, answer)
    batch.step()
    start, steps = day.done(), 0
    while batch.busy:
        batch.step()
        steps += 1
    return (day.done() - start) / steps


def read_bandwidth(day: Day) -> float:
    """Return the bytes a second of reading the device's memory."""
    data = torch.ones((1 << 31 if day.on_gpu else 1 << 22) // 4, device=day.device)
    return float(data.numel() * 4 / min(day.seconds_of(data.amax) for _ in range(6)))


def decoding(day: Day, batch: Any, weights: int, rows: int) -> dict[str, Any]:
    """Measure decoding, and the share of what the bandwidth would allow if a step read the weights alone."""
    prompt, answer = (8, 6) if day.dry else (128, 256)
    decode(day, batch, rows, prompt, answer)  # captures, and warms up
    spent = decode(day, batch, rows, prompt, answer)
    bandwidth = day.rates[1] if day.rates else read_bandwidth(day)
    found = {"tokens_per_s": round(rows / spent, 1), "ms_per_step": round(1e3 * spent, 3)}
    return found | {
        "bound_tokens_per_s": round(rows * bandwidth / weights, 1),
        "share_of_bound": round(weights / bandwidth / spent, 4),
        "bandwidth_gb_s": round(bandwidth / 1e9, 1),
        "bandwidth_is": "the data sheet's"
        if day.rates
        else "measured: this device is not in benchmarks.chips",
    }


def sampler(day: Day, seconds: float) -> Pieces:
    """Measure decoding of both shapes; then turn 3 of a chat, and a short request beside a long one."""
    for name in ("qwen3", "smollm2"):
        model = model_of(day, name)
        batch = batch_of(model, rows=64, remembered_tokens=0)
        for rows in (1, 64):
            yield f"{name}_{rows}", partial(decoding, day, batch, bytes_of(model), rows)
    own = ThreadedSampler(batch_of(model_of(day), rows=8))
    sizes, repeats = (Sizes(60, 10, 4, 4, 4, 40, 20), 1) if day.dry else (Sizes(), 3)
    yield "scenarios", lambda: asyncio.run(both_scenarios(own, partial(ids, 512), sizes, repeats))


def sleep(day: Day, seconds: float) -> Pieces:
    """Measure what sleep of the hf sampler gives back."""
    yield "hf", lambda: sleeping(day, batch_of(model_of(day), rows=32))


def sleeping(day: Day, batch: Any) -> dict[str, Any]:
    """Put a sampler to sleep while rows are running, wake it, and have it take a step."""
    submit(batch, *((2, 8, 12) if day.dry else (32, 512, 64)))
    for _ in range(4):
        batch.step()
    before = day.free()
    sleep_s = day.seconds_of(batch.sleep)
    asleep = day.free()
    wake_s = day.seconds_of(batch.wake)
    found = {"sleep_s": round(sleep_s, 4), "wake_s": round(wake_s, 4)}
    found["step_after_s"] = round(day.seconds_of(batch.step), 4)
    while batch.busy:
        batch.step()
    return found if before is None or asleep is None else {**found, "freed_gb": round(asleep - before, 3)}


def arriving(day: Day, given: dict[str, Any]) -> dict[str, Any]:
    """Time host weights that arrive at a sampler, the same from tensors of the device, and the proof of it."""
    model = model_of(day)
    batch = batch_of(model, rows=8)
    tensors = {name: value.detach().clone() for name, value in model.named_parameters()}
    times = {
        "load_s": min(day.seconds_of(lambda: batch.load(given, 1)) for _ in range(2)),
        "proof_s": min(day.seconds_of(batch.arrived) for _ in range(2)),
    }
    sent, found = digests(given, dtype=HALF), digests(named_tensors(model))
    fault = arrival_fault(sent, {name: found[name] for name in sent})
    times["same_device_s"] = min(day.seconds_of(lambda: copy_weights(model, tensors)) for _ in range(2))
    return {"arrived": fault is None, **{name: round(value, 4) for name, value in times.items()}}


def sampler_memory(day: Day) -> dict[str, Any]:
    """Compare the largest memory of 32 rows of 1,024 tokens with the estimate: weights, cache, a step's logits."""
    rows, prompt, answer = (2, 8, 8) if day.dry else (32, 512, 512)
    before = torch.cuda.memory_allocated() if day.on_gpu else 0
    if day.on_gpu:
        torch.cuda.reset_peak_memory_stats()
    model = model_of(day)
    batch = batch_of(model, rows=rows, remembered_tokens=0)
    decode(day, batch, rows, prompt, answer)
    cache = rows * (prompt + answer) * batch.cache_token_bytes
    expected = bytes_of(model) + cache + rows * model.config.vocab_size * (4 + 4 + 8 + 8)
    found = {"estimate_gb": round(expected / 1e9, 3)}
    if day.on_gpu:
        peak = torch.cuda.max_memory_allocated() - before
        found |= {"peak_gb": round(peak / 1e9, 3), "peak_over_estimate": round(peak / expected, 3)}
    return found
