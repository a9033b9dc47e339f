"""Random models and batches. Needs torch; Transformers for a model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from trainer.algo.base import LossOutput
from trainer.data.batch import TrainBatch

__all__ = ["batch_of", "likelihood", "packed_row", "qwen3", "random_model", "row", "smol", "smol_config"]

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


def smol_config(layers: int) -> Any:
    """Return the configuration of SmolLM2-135M's shape, which has 30 layers."""
    from transformers import LlamaConfig

    shape: dict[str, Any] = {"vocab_size": 49_152, "hidden_size": 576, "intermediate_size": 1_536}
    heads: dict[str, Any] = {"num_attention_heads": 9, "num_key_value_heads": 3, "num_hidden_layers": layers}
    return LlamaConfig(**shape, **heads, max_position_embeddings=32_768, tie_word_embeddings=True)


def smol(layers: int) -> Any:
    """Build SmolLM2-135M's shape with random weights and fewer layers."""
    return random_model(smol_config(layers))


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


def packed_row(tokens: int, vocabulary: int) -> TrainBatch:
    """Return a batch of one row of eight sequences of uneven lengths, the last quarter of each trained."""
    shares = torch.arange(5, 13)
    length_S = (tokens * shares).div(shares.sum(), rounding_mode="floor")
    length_S[-1] += tokens - length_S.sum()
    place_T = torch.cat([torch.arange(int(length)) for length in length_S])
    mask_BT = (place_T >= length_S.repeat_interleave(length_S) * 3 // 4)[None]
    segments_BT = torch.arange(1, 9).repeat_interleave(length_S)[None]
    tokens_BT = torch.randint(0, vocabulary, (1, tokens))
    return batch_of(tokens_BT, mask_BT, segment_ids_BT=segments_BT, normalizer=float(tokens))


def likelihood(batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
    """Return the loss of imitation."""
    return LossOutput(-torch.where(batch.loss_mask_BT, logprobs_BT, 0.0).sum() / batch.normalizer)
