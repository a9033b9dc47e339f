"""What IPA's reductions over chunks cost, against a Python loop over the segments.

`python -m benchmarks.chunks [--quick]`. Both do what IPA's loss does with chunks: the geometric-mean ratios w and rho,
the mask on w, and each chunk's weight and mask brought back to its tokens; forward only, as all of it is detached. The
loop is given the segments' boundaries for nothing; ours begins with finding them. One thread, calls of either in turn
within one process. The last line is one JSON object:

- `ratio_16x4k`, `ratio_64x16k`: our median processor time over the loop's, at 16 rows of 4,096 tokens in 8 turns and at 64
  rows of 16,384 tokens in 20 turns (goal: at most 1/3);
- `difference`: the largest difference between the two in any weight (goal: at most 1e-6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import process_time

import torch

from benchmarks.models import batch_of
from benchmarks.scaffold import finish, parser_of
from trainer.algo.terms.chunks import chunks_of
from trainer.data.batch import TrainBatch

LOW, HIGH = 0.9, 1.1
"""Bounds of the mask, so close that it drops some chunks of the random policy below and keeps others."""
SIZES = {"16x4k": (16, 4096, 8), "64x16k": (64, 16384, 20)}
"""Rows, tokens of a row, turns of a row."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The tokens of one chunk: `start` to `end` of a row."""

    row: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A batch, the present log-probabilities of its tokens, and its chunks as a loop wants them."""

    batch: TrainBatch
    logprobs_BT: torch.Tensor
    segments: list[Segment]


def case(rows: int, tokens: int, turns: int, *, seed: int = 0) -> Case:
    """Build rows of `turns` turns, each a prompt or observation and then a completion, of random lengths."""
    generator = torch.Generator().manual_seed(seed)
    segments = []
    for row in range(rows):
        cuts = torch.randperm(tokens - 1, generator=generator)[: 2 * turns - 1].sort().values + 1
        edges = [0, *cuts.tolist(), tokens]
        segments += [Segment(row, *edges[place : place + 2]) for place in range(1, 2 * turns, 2)]
    chunk_index_BT = torch.full((rows, tokens), -1)
    for chunk, segment in enumerate(segments):
        chunk_index_BT[segment.row, segment.start : segment.end] = chunk
    mask_BT = chunk_index_BT >= 0

    def noise(scale: float) -> torch.Tensor:
        return scale * torch.randn(rows, tokens, generator=generator)

    mu_BT = -noise(1.0).abs()
    prox_BT = mu_BT + noise(1.0)
    batch = batch_of(
        torch.zeros(rows, tokens, dtype=torch.int64),
        mask_BT,
        rollout_logprobs_BT=torch.where(mask_BT, mu_BT, 0),
        prox_logprobs_BT=prox_BT,
        chunk_index_BT=chunk_index_BT,
        chunks=len(segments),
        normalizer=1.0,
    )
    return Case(batch, prox_BT + noise(0.5), segments)


def vectorised(one: Case) -> torch.Tensor:
    """Return every token's weight, as `trainer.algo.ipa` computes it."""
    batch, prox_BT = one.batch, one.batch.prox_logprobs_BT
    assert prox_BT is not None
    chunks = chunks_of(batch)
    log_w_C = chunks.mean(prox_BT - batch.rollout_logprobs_BT)
    log_u_C = chunks.mean(one.logprobs_BT - prox_BT)
    w_C, rho_C = log_w_C.exp(), (log_w_C + log_u_C).exp()
    kept_C = (w_C >= LOW) & (w_C <= HIGH)
    weight_BT = chunks.spread(rho_C.clamp(0, 1))
    return torch.where(chunks.spread(kept_C), weight_BT, 0)


def looped(one: Case) -> torch.Tensor:
    """Return every token's weight, segment by segment."""
    batch, prox_BT = one.batch, one.batch.prox_logprobs_BT
    assert prox_BT is not None
    weight_BT = torch.zeros_like(one.logprobs_BT)
    for segment in one.segments:
        at = segment.row, slice(segment.start, segment.end)
        log_w = (prox_BT[at] - batch.rollout_logprobs_BT[at]).mean()
        log_u = (one.logprobs_BT[at] - prox_BT[at]).mean()
        w, rho = log_w.exp(), (log_w + log_u).exp()
        if LOW <= w <= HIGH:
            weight_BT[at] = rho.clamp(0, 1)
    return weight_BT


def timed(call: Callable[[Case], torch.Tensor], one: Case) -> float:
    """Return the seconds of processor time of one call: what else this machine does must not decide."""
    start = process_time()
    call(one)
    return process_time() - start


def compare(one: Case, rounds: int) -> dict[str, float]:
    """Return medians of both in milliseconds, their ratio, and the largest difference of a weight."""
    ours, loop = vectorised(one), looped(one)  # these warm up as well
    seconds: dict[Callable[[Case], torch.Tensor], list[float]] = {vectorised: [], looped: []}
    for _ in range(rounds):
        for call, spent in seconds.items():
            spent.append(timed(call, one))
    ours_s, loop_s = median(seconds[vectorised]), median(seconds[looped])
    return {
        "ours_ms": round(ours_s * 1e3, 2),
        "loop_ms": round(loop_s * 1e3, 2),
        "ratio": round(ours_s / loop_s, 3),
        "difference": float((ours - loop).abs().max()),
        "dropped": round(float((ours == 0)[one.batch.loss_mask_BT].float().mean()), 2),
    }


def main() -> None:
    """Measure all sizes."""
    parser = parser_of(__doc__, quick="about 5 s instead of half a minute")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    found = {name: compare(case(*size), 15 if quick else 101) for name, size in SIZES.items()}
    for name, one in found.items():
        print(
            f"{name}: ours {one['ours_ms']} ms, loop {one['loop_ms']} ms: {one['ratio']}x; "
            f"{one['dropped']:.0%} of the tokens masked"
        )
    result = {f"ratio_{name}": one["ratio"] for name, one in found.items()}
    finish({**result, "difference": max(one["difference"] for one in found.values())})


if __name__ == "__main__":
    main()
