"""What each installed sampler makes of a conversation, and what the proof costs that weights arrived.

`python -m benchmarks.engines [--quick]`. Everything on one thread, single requests to those that step (ADR 0052), the two
sides of a ratio in turns, medians. `hf` and, where it is installed, vLLM have a random Qwen3 of 3.1 million
parameters in float32, made here. The last line is one JSON object, by the engine's name; what was not measured is null, as
all is of engines of others' packages:

- `turn3_over_new_tokens`: the third turn of a growing chat over its new tokens as a prompt of their own (goal for `hf`: at
  most 1.3);
- `short_beside_long`: a short request beside a long one over the short one alone (goal for `hf`: at most 1.5);
- `proof_ms`: digests of all weights at the learner and at the sampler, and their comparison.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.models import qwen3, random_model
from benchmarks.sampler_scenarios import Sizes, both_scenarios
from benchmarks.scaffold import finish, parser_of, seconds_of
from rock_env import plugins
from trainer.models.coder import engine as coder
from trainer.models.coder import words
from trainer.models.coder.net import CoderShape
from trainer.models.coder.sampling import CoderInference
from trainer.models.tiny import tokenizer as tiny_tokens
from trainer.models.tiny.model import TinyModel, TinyShape
from trainer.protocols.engines import Weights
from trainer.protocols.net import host_weights
from trainer.samplers.arrival import check_arrival
from trainer.samplers.generate import TorchInference
from trainer.samplers.hf.continuous import Bounds, ContinuousBatch
from trainer.samplers.hf.ragged import RaggedModel
from trainer.samplers.proof import digests, precisions
from trainer.samplers.threaded import SteppedBatch, ThreadedSampler

CONTEXT = 2560
SHAPE = "3m"
NEVER = -1
"""No end token: answers end by their length."""
QUICK = Sizes(answer=24, short_answer=12, long_answer=200)
MEASURED = ("turn3_over_new_tokens", "short_beside_long", "proof_ms")


@dataclass
class Case:
    """An engine with weights, and the ids that its prompts are made of (`low` to `high`, exclusive)."""

    engine: Any
    weights: Weights
    low: int
    high: int

    def ids(self, count: int, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(self.low, self.high, count).astype(np.int32)


def of_tiny() -> Case:
    shape = TinyShape(
        vocabulary=tiny_tokens.TinyTokenizer().size, layers=3, width=64, heads=4, max_context=CONTEXT
    )
    net = TinyModel(shape, 0)
    engine = TorchInference(net, end_id=NEVER, max_rows=256)
    return Case(engine, host_weights(net), tiny_tokens.SPECIALS, shape.vocabulary)


def of_coder() -> Case:
    shape = CoderShape(layers=3, width=96, heads=4, max_context=CONTEXT)
    net = coder.TrainedCoder(words.CoderWords.built_in(), shape, 0)
    engine = CoderInference(net, max_rows=32, kept=256)
    return Case(engine, host_weights(net), words.SPECIALS, net.words.size)


def of_hf() -> Case | None:
    if importlib.util.find_spec("transformers") is None:
        return None
    model = random_model(qwen3(SHAPE, CONTEXT)).eval()
    engine = ContinuousBatch(RaggedModel(model, max_context=CONTEXT), end_id=NEVER, bounds=Bounds(rows=8))
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    return Case(engine, weights, 0, model.config.vocab_size)


def of_vllm() -> Case | None:
    if importlib.util.find_spec("vllm") is None:
        return None
    model = random_model(qwen3(SHAPE, CONTEXT)).eval()
    engine = vllm_of(model, CONTEXT, dtype="float32", rows=8, cache_bytes=1 << 28)
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    return Case(engine, weights, 0, model.config.vocab_size)


def vllm_of(model: Any, context: int, *, dtype: str, rows: int, cache_bytes: int) -> Any:
    """Return vLLM's engine with a model's weights."""
    from trainer.samplers.vllm.batch import VllmBatch, VllmBounds

    bounds = VllmBounds(context, rows=rows, cache_bytes=cache_bytes)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return VllmBatch(folder, dtype=dtype, end_id=NEVER, bounds=bounds, text=str)


CASES: Mapping[str, Callable[[], Case | None]] = {
    "tiny": of_tiny,
    "coder": of_coder,
    "hf": of_hf,
    "vllm": of_vllm,
}


def proof_ms(case: Case, repeats: int) -> float:
    """Time both sides of the proof."""
    like = precisions(case.engine.arrived().digests)

    def prove() -> None:
        check_arrival(digests(case.weights, dtype=like), [case.engine.arrived()], 0)

    return round(1e3 * median(seconds_of(prove) for _ in range(repeats)), 2)


def measured(case: Case, sizes: Sizes, repeats: int) -> dict[str, float | None]:
    """Measure one engine."""
    parameters = sum(value.size for value in case.weights.values())
    found: dict[str, float | None] = {"parameters": parameters, "proof_ms": proof_ms(case, 5 * repeats)}
    if not isinstance(case.engine, SteppedBatch):
        return found
    sampler = ThreadedSampler(case.engine)

    async def both() -> dict[str, float | None]:
        await sampler.load({name: np.array(value) for name, value in case.weights.items()}, 0)
        return await both_scenarios(sampler, case.ids, sizes, repeats)

    return found | asyncio.run(both())


def main() -> None:
    """Measure every installed engine."""
    parser = parser_of(__doc__, quick="at most 50 s")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    found: dict[str, dict[str, float | None]] = {}
    for name in plugins.names("ale.engines"):
        case = CASES[name]() if name in CASES else None
        start = time.perf_counter()
        found[name] = dict.fromkeys(MEASURED)
        if case is not None:
            found[name] |= measured(case, QUICK if quick else Sizes(), 5 if quick else 15)
        print(f"{name}: {json.dumps(found[name])} in {time.perf_counter() - start:.1f} s", flush=True)
    finish(found)


if __name__ == "__main__":
    main()
