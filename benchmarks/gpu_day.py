"""What only a GPU can say, within ten minutes on one GPU, in order of worth.

    python -m benchmarks.gpu_day [--part NAME...] [--seconds 560] [--out FILE] [--device cuda] [--model FOLDER]
    python -m benchmarks.gpu_day --dry-run        # every part at tiny sizes on the processor: does it work at all

Each part is a process of its own with a limit of its own (`benchmarks.parts`), prints one line of JSON as it ends, and
writes it, and each piece before it, to FILE at once. The last line is one JSON object of all parts. What is not installed or
not at hand is `missing`, with what brings it. Random weights but for `smollm2`; nothing is downloaded. Over 1 is slower.

- `device`: what it is measured on. `benchmarks.chips` has makers' rates; without them `mfu` is null, and that is said.
- `learner`: an update of 8,192 tokens of SmolLM2-135M's and Qwen3-0.6B's shape in bfloat16, as one `row` and as eight
  sequences `packed` in one: `over_plain`, its time over plain torch's; `mfu`, 6 x parameters x tokens (LoRA: 4, since frozen
  weights have no gradient) over the chip's rate; `loss_apart`, the difference of the first losses.
- `sampler`: decoding of 1 and 64 rows as a share of what the bandwidth allows if a step reads the weights and nothing else;
  Qwen3's third turn of a chat over its new tokens alone (goal 1.3), a short request beside a long one over alone (1.5).
- `weights`: seconds from an update's end to the host, into a sampler, for the proof, and from tensors of the same device,
  which no run does yet. Samplers take whole weights: of LoRA's adapters alone only the way to the host is there.
- `sleep`: a sampler's sleep and wake, the memory that is freed, and the step after it, which reads 32 rows again.
- `ranks`: largest difference of a weight after 20 updates, one rank of FSDP2 and ZeRO-2 against plain torch (goal 1e-5);
  `cpu`: a float32 update's loss and gradients against the processor's (goal 1e-4).
- `memory`: largest memory of updates with `checkpointing`, and of a sampler, over the estimate.
- `peers`: vLLM's decoding and sleep; ALE's step over TRL's and plain torch's, of some .3 billion parameters in float32.
- `smollm2`: 40 steps of frozen_lake, or as many as there is time for (in a dry run two of the `tiny` engine).

SmolLM2's folder is what `ale model get smollm2` keeps. To carry it in pieces of at most 40 MiB, and to join them there:
`tar c -C FOLDER . | split -b 40m - smollm2.` and `mkdir FOLDER && cat smollm2.* | tar x -C FOLDER`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from time import perf_counter

import torch

from benchmarks.chips import Day
from benchmarks.parts import Part, run_parts
from benchmarks.scaffold import commit, finish, parser_of

PARTS = {
    "device": Part("benchmarks.gpu_peers:device", 60),
    "learner": Part("benchmarks.gpu_learner:learner", 120),
    "sampler": Part("benchmarks.gpu_sampler:sampler", 75),
    "weights": Part("benchmarks.gpu_learner:weights", 45),
    "sleep": Part("benchmarks.gpu_sampler:sleep", 30),
    "ranks": Part("benchmarks.gpu_learner:ranks", 60),
    "memory": Part("benchmarks.gpu_learner:memory", 75),
    "peers": Part("benchmarks.gpu_peers:peers", 150),
    "smollm2": Part("benchmarks.gpu_peers:smollm2", 400),
}
"""In order of worth. Most end long before their limit; the last gets what is left."""
SAFE = ("torch", "transformers")
"""Imported once for all parts. Transformers' models ask for the accelerator as they are imported, and CUDA that has begun in
a process does not work in those that are forked from it."""
DRY = ("benchmarks.gpu_learner", "benchmarks.gpu_peers", "transformers.models.qwen3.modeling_qwen3")


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=560.0, help="for all parts together")
    parser.add_argument("--out", type=Path, help="a file that gets each line at once")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default="smollm2", help="folder of SmolLM2")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes on the processor")
    given = parser.parse_args()
    if given.dry_run:
        os.environ["OMP_NUM_THREADS"] = "1"
    elif not torch.cuda.is_available():
        parser.error("no CUDA device is here. Use --dry-run to try the code.")
    day = Day("cpu" if given.dry_run else given.device, dry=given.dry_run, model=given.model)
    began, parts = perf_counter(), {name: PARTS[name] for name in given.part}
    found = run_parts(parts, day, seconds=given.seconds, out=given.out, preload=DRY if day.dry else SAFE)
    spent = round(perf_counter() - began, 1)
    failed = [name for name, part in found.items() if not part["ok"]]
    return finish({"commit": commit(), "seconds": spent, "failed": failed, **found}, bad=failed)


if __name__ == "__main__":
    sys.exit(main())
