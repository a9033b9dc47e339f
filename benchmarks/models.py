"""Random models and batches, and parts of a benchmark of which one may fail. Needs torch; Transformers for a model."""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Callable
from dataclasses import replace
from time import perf_counter
from typing import Any

import torch

from trainer.algo.base import LossOutput
from trainer.data.batch import TrainBatch

__all__ = ["attempt", "batch_of", "likelihood", "qwen3", "random_model", "row", "smol"]

SHAPES = {
    "0.6b": (151_936, 1_024, 3_072, 28, 16, 8, 128),
    "3m": (4_096, 192, 512, 6, 6, 2, 32),
    "tiny": (512, 64, 128, 2, 4, 2, 16),
}
"""The values of `_FIELDS`; the first is that of Qwen3-0.6B."""
_FIELDS = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim"),
)


def qwen3(shape: str, context: int, **changes: Any) -> Any:
    """Return the configuration of a Qwen3 of a shape by name; `context` in tokens."""
    from transformers import Qwen3Config

    known = {"max_position_embeddings": context, "rope_theta": 1_000_000.0, "tie_word_embeddings": True}
    return Qwen3Config(**{**dict(zip(_FIELDS, SHAPES[shape], strict=True)), **known, **changes})


def smol(layers: int) -> Any:
    """Build SmolLM2-135M's shape with random weights and fewer layers."""
    from transformers import LlamaConfig

    shape: dict[str, Any] = {"vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1_536}
    heads: dict[str, Any] = {"num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": layers}
    return random_model(
        LlamaConfig(**shape, **heads, max_position_embeddings=32_768, tie_word_embeddings=True)
    )


def random_model(
    config: Any, *, device: Any = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0
) -> Any:
    """Build a model with random weights where it is to be."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")


def batch_of(tokens_BT: torch.Tensor, mask_BT: torch.Tensor, **changes: Any) -> TrainBatch:
    """Return a batch that trains the tokens of the mask, each row one chunk of a trajectory of its own."""
    rows = torch.arange(len(tokens_BT))
    plain = TrainBatch(
        tokens_BT=tokens_BT,
        segment_ids_BT=torch.ones_like(tokens_BT),
        loss_mask_BT=mask_BT,
        rollout_logprobs_BT=torch.where(mask_BT, -1.0, 0.0),
        prox_logprobs_BT=None,
        advantages_BT=mask_BT.float(),
        positive_BT=mask_BT,
        chunk_index_BT=torch.where(mask_BT, rows[:, None], -1),
        chunks=len(rows),
        trajectory_index_B=rows,
        imitation_BT=torch.zeros(tokens_BT.shape),
        policy_version_BT=torch.where(mask_BT, 0, -1),
        normalizer=float(mask_BT.sum()),
        imitation_normalizer=1.0,
    )
    return replace(plain, **changes)


def row(tokens: int, vocabulary: int) -> TrainBatch:
    """Return a batch of one row whose last quarter trains, as a CLI agent's answers after its opening do."""
    mask_BT = torch.arange(tokens)[None] >= tokens * 3 // 4
    return batch_of(torch.randint(0, vocabulary, (1, tokens)), mask_BT, normalizer=float(tokens))


def likelihood(batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
    """Return the loss of imitation."""
    return LossOutput(-torch.where(batch.loss_mask_BT, logprobs_BT, 0.0).sum() / batch.normalizer)


def attempt(found: dict[str, Any], name: str, part: Callable[[], Any]) -> float:
    """Run a part; keep what it says, or how it failed. Return its seconds."""
    began = perf_counter()
    try:
        found[name] = part()
    except Exception as error:  # noqa: BLE001 - the other parts are to run whatever this one meets
        traceback.print_exc()
        found[name] = {"failed": f"{type(error).__name__}: {error}"[:600]}
    spent = perf_counter() - began
    print(f"{name} ({spent:.1f} s): {json.dumps(found[name])}", flush=True)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return spent
