"""What a long row takes to train: peak memory and time of one update, in a process of its own for every length.

`python -m benchmarks.long_rows [--quick] [--layers N]`. The model has the widths and the vocabulary of SmolLM2-135M and
random weights; its 30 layers are reduced to `--layers` (2, with `--quick` 1) so that a processor gets through. It is
trained in float32 with AdamW by the learner of the `hf` engine with `checkpointing`. The last quarter of a row trains,
as a CLI agent's answers after its opening do. The last line is one JSON object:

- `gb_at_8k`, `gb_at_26k`: the largest resident memory of the process (10^9 bytes) after one update with a row of 8,000
  and of 26,000 tokens (goal: at most 20 at 26,000);
- `step_s_per_1k_tokens`: processor seconds of the update at 26,000 tokens, for every thousand of them;
- `mb_per_1k_tokens`: memory of the growth between the two, for every thousand tokens;
- `linear_gb_at_26k`: what memory linear in the tokens comes to at 26,000, read from shorter rows (not with `--quick`).
"""

from __future__ import annotations

import argparse
import json
import resource
from time import process_time

import torch
import transformers

from benchmarks.models import batch_of
from benchmarks.scaffold import Child, finish, parser_of
from trainer.algo.base import LossOutput
from trainer.data.batch import TrainBatch
from trainer.learners.recompute import recompute_layers
from trainer.learners.torch_train import TorchTrain
from trainer.models.hf import HFNet
from trainer.protocols.engines import OptimOptions

SHORT, LONG = 8_000, 26_000
CONTEXT = 32_768


def smol(layers: int) -> transformers.PreTrainedModel:
    """Build SmolLM2-135M's shape with random weights and fewer layers."""
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(
        transformers.LlamaConfig(
            vocab_size=49_152,
            hidden_size=576,
            intermediate_size=1_536,
            num_hidden_layers=layers,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
        )
    )


def row(tokens: int, vocabulary: int) -> TrainBatch:
    """Return a batch of one row whose last quarter trains."""
    mask = torch.arange(tokens)[None] >= tokens * 3 // 4
    return batch_of(torch.randint(0, vocabulary, (1, tokens)), mask, normalizer=float(tokens))


def likelihood(batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
    return LossOutput(-torch.where(batch.loss_mask_BT, logprobs_BT, 0.0).sum() / batch.normalizer)


def one(tokens: int, layers: int) -> dict[str, float]:
    """Train one row in this process; return what it took."""
    torch.set_num_threads(1)
    model = smol(layers)
    recompute_layers(model)
    train = TorchTrain(HFNet(model, max_context=CONTEXT), OptimOptions(), export=lambda folder: None)
    batch = row(tokens, train.net.vocabulary)
    began = process_time()
    train.step(batch, likelihood, lr=1e-6)
    return {
        "gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "seconds": process_time() - began,
    }


def apart(tokens: int, layers: int) -> dict[str, float]:
    """Train one row in a process of its own."""
    words = ["-m", "benchmarks.long_rows", "--one", str(tokens), "--layers", str(layers)]
    with Child(*words) as child:
        found: dict[str, float] = child.first
    print(f"{tokens:>6} tokens, {layers} layers: {found['gb']:.2f} GB, {found['seconds']:.1f} s", flush=True)
    return found


def main() -> None:
    parser = parser_of(__doc__, quick="two lengths, one layer")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    layers = arguments.layers or (1 if arguments.quick else 2)
    if arguments.one:
        print(json.dumps(one(arguments.one, layers)))
        return
    lengths = (SHORT, LONG) if arguments.quick else (4_000, SHORT, 16_000, LONG)
    taken = {tokens: apart(tokens, layers) for tokens in lengths}
    result = {
        "gb_at_8k": taken[SHORT]["gb"],
        "gb_at_26k": taken[LONG]["gb"],
        "step_s_per_1k_tokens": taken[LONG]["seconds"] / (LONG / 1e3),
        "mb_per_1k_tokens": (taken[LONG]["gb"] - taken[SHORT]["gb"]) * 1e3 / ((LONG - SHORT) / 1e3),
    }
    if not arguments.quick:
        slope = (taken[16_000]["gb"] - taken[4_000]["gb"]) / 12_000
        result["linear_gb_at_26k"] = taken[16_000]["gb"] + slope * (LONG - 16_000)
    finish({name: round(value, 3) for name, value in result.items()} | {"layers": layers})


if __name__ == "__main__":
    main()
