"""A plain English text of 4 KB, and how unlikely a policy finds it: what a pretrained model must not forget.

Used by the learner, whose guard is `trainer.guard`. The text is ours (`plain_text.txt`), so that a number means the same
in every run. Shapes: B rows, T tokens.
"""

from __future__ import annotations

from pathlib import Path

import torch

from agent_runtime.types import IntArray
from trainer.data.batch import TrainBatch
from trainer.protocols.engines import TrainEngine

__all__ = ["ROW_TOKENS", "plain_batch", "plain_text", "text_nll"]

_TEXT = Path(__file__).with_name("plain_text.txt")
ROW_TOKENS = 1024
"""Most tokens of a row: the whole text for the usual tokenizers, and little memory."""


def plain_text() -> str:
    """Return the text."""
    return _TEXT.read_text(encoding="utf-8")


def plain_batch(ids: IntArray, max_context: int) -> TrainBatch:
    """Return the ids as rows of at most `max_context` tokens, in which all but a row's first token count."""
    rows = torch.split(torch.from_numpy(ids.astype("int64")), min(max_context, ROW_TOKENS))
    tokens_BT = torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    place_T = torch.arange(tokens_BT.shape[1])
    real_BT = place_T < torch.tensor([len(row) for row in rows])[:, None]
    nothing_BT = torch.zeros(tokens_BT.shape)
    return TrainBatch(
        tokens_BT=tokens_BT,
        segment_ids_BT=real_BT.long(),
        loss_mask_BT=torch.zeros_like(real_BT),
        rollout_logprobs_BT=nothing_BT,
        prox_logprobs_BT=None,
        advantages_BT=nothing_BT,
        positive_BT=torch.zeros_like(real_BT),
        chunk_index_BT=torch.full_like(tokens_BT, -1),
        chunks=0,
        trajectory_index_B=torch.arange(len(rows)),
        imitation_BT=(real_BT & (place_T > 0)).float(),
        policy_version_BT=torch.full_like(tokens_BT, -1),
        normalizer=1.0,
        imitation_normalizer=1.0,
    )


def text_nll(engine: TrainEngine, batch: TrainBatch) -> float:
    """Return the mean `-log pi` of the tokens that count. Raise `FloatingPointError` where one is not finite."""
    logprobs_BT = engine.logprobs(batch)
    return -float(logprobs_BT.sum(dtype=torch.float64) / batch.imitation_BT.sum())
