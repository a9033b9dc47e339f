"""The hf sampler on one GPU: exactness, tokens/s against the bandwidth limit, weight sync, memory, turn 3, a short request.

    python -m benchmarks.gpu                       # a random Qwen3-0.6B in bfloat16, made from its configuration
    python -m benchmarks.gpu --device cpu --tiny   # the same code in seconds, to see that it works

Needs torch, transformers and numpy only; downloads nothing. The last line is one JSON object. A part that fails says so
there and the others go on.
"""

from __future__ import annotations

import asyncio
import copy
import json
import time
from typing import Any

import numpy as np
import torch

from agent_runtime.policy import SampleRequest
from agent_runtime.types import SamplingParams
from benchmarks.models import attempt, qwen3, random_model
from benchmarks.sampler_scenarios import Scenario, Sizes
from benchmarks.scaffold import finish, parser_of
from trainer.protocols.net import copy_weights
from trainer.samplers.hf.continuous import Bounds, ContinuousBatch
from trainer.samplers.hf.ragged import RaggedModel
from trainer.samplers.hf.rows import Recall
from trainer.samplers.proof import arrival_fault, digests, named_tensors
from trainer.samplers.threaded import ThreadedSampler

CONTEXT = 4_096
NEVER = -1
"""No end token: answers end by their length."""


class Bench:
    """One device, one model, and the parts of the benchmark over it."""

    def __init__(self, device: str, *, tiny: bool) -> None:
        self.device = torch.device(device)
        self.tiny = tiny
        self.on_gpu = self.device.type == "cuda"
        self.config = qwen3("tiny" if tiny else "0.6b", CONTEXT)
        self.dtype = torch.bfloat16
        self.bandwidth = 0.0

    def done(self) -> float:
        """Wait for the device; return the time."""
        if self.on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    def model(self, dtype: torch.dtype, **changes: Any) -> Any:
        config = qwen3("tiny" if self.tiny else "0.6b", CONTEXT, **changes)
        return random_model(config, device=self.device, dtype=dtype).eval()

    def batch(self, model: Any, *, graphs: bool = True, **bounds: int) -> ContinuousBatch:
        ragged = RaggedModel(model, max_context=CONTEXT)
        return ContinuousBatch(ragged, end_id=NEVER, bounds=Bounds(**bounds), graphs=graphs)

    def ids(self, count: int, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).integers(0, self.config.vocab_size, count).astype(np.int32)

    def request(self, seed: int, prompt: int, answer: int) -> SampleRequest:
        return SampleRequest(f"r{seed}", 0, self.ids(prompt, seed), SamplingParams(max_tokens=answer), seed)

    # -- parts ------------------------------------------------------------------------------------------------

    def hardware(self) -> dict[str, Any]:
        """Name the device and measure its memory bandwidth by reading."""
        data = torch.ones((1 << 31 if self.on_gpu else 1 << 25) // 2, dtype=torch.int16, device=self.device)
        size, times = data.numel() * data.element_size(), []
        for _ in range(6):
            start = self.done()
            data.view(torch.float32).amax()
            times.append(self.done() - start)
        self.bandwidth = size / min(times)
        found = {"torch": torch.__version__, "device": "cpu", "read_gb_s": round(self.bandwidth / 1e9, 1)}
        if self.on_gpu:
            properties = torch.cuda.get_device_properties(self.device)
            found |= {"device": properties.name, "memory_gib": round(properties.total_memory / 2**30, 1)}
        return found

    def exactness(self) -> dict[str, Any]:
        """Compare sampled log-probabilities in float32 with full forwards, with and without captured steps."""
        model = self.model(torch.float32, num_hidden_layers=2)
        plain = copy.deepcopy(model)
        found: dict[str, Any] = {}
        answers = []
        for graphs in (True, False):
            batch = self.batch(copy.deepcopy(model), graphs=graphs, rows=8)
            requests = [self.request(seed, count, 24) for seed, count in enumerate((5, 70, 300, 1, 33))]
            answers.append(batch.sample(requests))
            worst = 0.0
            for request, answer in zip(requests, answers[-1], strict=True):
                ids = np.concatenate((request.prompt_ids, answer.ids)).astype(np.int64)
                tokens = torch.from_numpy(ids).to(self.device)
                with torch.inference_mode():
                    logits = plain(input_ids=tokens[None], use_cache=False).logits[0, :-1].float()
                expected = torch.log_softmax(logits, -1).gather(1, tokens[1:, None])[:, 0].cpu().numpy()
                worst = max(worst, float(np.abs(expected[-len(answer.ids) :] - answer.logprobs).max()))
            found["captured_error" if graphs else "eager_error"] = worst
            found["captured" if graphs else "eager_captures"] = batch.decoder.graphs
        same = [one.ids.tolist() == two.ids.tolist() for one, two in zip(*answers, strict=True)]
        return found | {"same_tokens": all(same)}

    def decoding(self) -> list[dict[str, Any]]:
        """Measure tokens/s of decoding by batch size, and the share of what the memory's bandwidth would allow."""
        model = self.model(self.dtype)
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        found = []
        prompt, answer = (128, 256) if not self.tiny else (16, 24)
        for graphs, sizes in ((True, (1, 8, 32, 64)), (False, (1, 32))):
            batch = self.batch(model, graphs=graphs, rows=64, remembered_tokens=0)
            for rows in sizes:
                count = answer if graphs else answer // 4
                self._decode(batch, rows, prompt, count)  # captures, and warms up
                spent, steps = self._decode(batch, rows, prompt, count)
                read = weights + rows * (prompt + count / 2) * batch.cache_token_bytes
                limit = self.bandwidth / read * rows if self.bandwidth else float("nan")
                rate = rows * steps / spent
                found.append(
                    {
                        "batch": rows,
                        "captured": batch.decoder.graphs,
                        "tokens_per_s": round(rate, 1),
                        "ms_per_step": round(1e3 * spent / steps, 3),
                        "bandwidth_limit_tokens_per_s": round(limit, 1),
                        "share_of_limit": round(rate / limit, 3),
                    }
                )
                print(json.dumps(found[-1]), flush=True)
        return found

    def _decode(self, batch: ContinuousBatch, rows: int, prompt: int, answer: int) -> tuple[float, int]:
        """Return the seconds of all decoding steps but the first, and how many they were."""
        for seed in range(rows):
            batch.submit(self.request(seed, prompt, answer), memory=Recall.NONE)
        batch.step()
        start, steps = self.done(), 0
        while batch.busy:
            batch.step()
            steps += 1
        return self.done() - start, steps

    def sync(self) -> dict[str, Any]:
        """Time weights that arrive: from the same device, from the host as float32; and the proof of it."""
        model, other = self.model(self.dtype), self.model(self.dtype)
        tensors = dict(other.named_parameters())
        found: dict[str, Any] = {"parameters": sum(p.numel() for p in tensors.values())}
        host = {name: value.detach().float().cpu().numpy() for name, value in tensors.items()}
        for name, given in (("device_ms", tensors), ("host_float32_ms", host)):
            times = []
            for _ in range(2):
                start = self.done()
                copy_weights(model, given)
                times.append(self.done() - start)
            found[name] = round(1e3 * min(times), 2)
        times = []
        for _ in range(3):
            start = self.done()
            arrived = digests(named_tensors(model))
            times.append(self.done() - start)
        found["proof_ms"] = round(1e3 * min(times), 2)
        sent = digests({name: host[name] for name in list(host)[:4]}, dtype=self.dtype)
        found["digest_equals_the_hosts"] = all(arrived[name] == digest for name, digest in sent.items())
        name = list(tensors)[-1]
        with torch.no_grad():
            dict(model.named_parameters())[name].view(-1)[0] += 1
        found["corrupted_tensor_found"] = (
            arrival_fault(digests(named_tensors(other)), digests(named_tensors(model))) == name
        )
        return found

    def memory(self) -> dict[str, Any]:
        """Compare the memory of 32 rows of 1,024 tokens with the estimate: weights, cache, one step's logits."""
        if not self.on_gpu:
            return {"skipped": "needs CUDA, which counts its memory"}
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        rows, prompt, answer = 32, 512, 512
        model = self.model(self.dtype)
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        batch = self.batch(model, rows=rows, remembered_tokens=0)
        self._decode(batch, rows, prompt, answer)
        cache = rows * (prompt + answer) * batch.cache_token_bytes
        logits = rows * self.config.vocab_size * (4 + 4 + 8 + 8)
        estimate, peak = weights + cache + logits, torch.cuda.max_memory_allocated() - before
        gib = {"weights": weights, "cache": cache, "logits": logits, "estimate": estimate, "peak": peak}
        found = {f"{name}_gib": round(size / 2**30, 3) for name, size in gib.items()}
        return found | {"peak_over_estimate": round(peak / estimate, 3)}

    def scenarios(self) -> dict[str, Any]:
        """Time turn 3 and a short request beside a long one."""
        sizes = Sizes() if not self.tiny else Sizes(200, 20, 8, 8, 8, 60, 60)
        sampler = ThreadedSampler(self.batch(self.model(self.dtype), rows=8))

        async def both() -> dict[str, Any]:
            scenario = Scenario(sampler, self.ids, sizes)
            try:
                return {
                    **await scenario.turn3_over_new_tokens(),
                    **await scenario.short_beside_long(),
                }
            finally:
                await sampler.close()

        return asyncio.run(both())


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model: does it work at all")
    parser.add_argument("--parts", default="hardware,exactness,decoding,sync,scenarios,memory")
    given = parser.parse_args()
    if given.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("no CUDA device is here. Use --device cpu --tiny to try the code.")
    torch.set_grad_enabled(False)
    bench, seconds = Bench(given.device, tiny=given.tiny), dict[str, float]()
    found: dict[str, Any] = {"seconds": seconds}
    for name in given.parts.split(","):
        seconds[name] = round(attempt(found, name, getattr(bench, name)), 1)
    finish(found)


if __name__ == "__main__":
    main()
