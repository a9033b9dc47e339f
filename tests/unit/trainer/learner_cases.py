"""Small random models of Transformers, and batches of rows for them, for the tests of learners."""

from __future__ import annotations

import torch
import transformers

from trainer.algo.base import LossOutput, Metric
from trainer.data.batch import TrainBatch
from trainer.learners.torch_train import TorchTrain
from trainer.models.hf import HFNet
from trainer.protocols.engines import OptimOptions

VOCABULARY = 96


def llama(
    seed: int = 0, *, kind: str = "Llama", context: int = 64, **changes: object
) -> transformers.PreTrainedModel:
    """Build a random model of two layers in float32."""
    config = getattr(transformers, f"{kind}Config")(
        **{
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": context,
            "initializer_range": 0.2,
            **changes,
        }
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return transformers.AutoModelForCausalLM.from_config(config)


def learner(model: transformers.PreTrainedModel, **optim: object) -> TorchTrain:
    """Wrap a model as a learner on its device."""
    net = HFNet(model, max_context=int(model.config.max_position_embeddings))
    return TorchTrain(net, OptimOptions(**optim), export=lambda folder: None, device=model.device)


def rows_of(
    lengths: list[int], *, trained: int = 3, seed: int = 0, vocabulary: int = VOCABULARY
) -> TrainBatch:
    """Return rows of these lengths whose last `trained` tokens train, each row one chunk, with mixed advantages."""
    generator = torch.Generator().manual_seed(seed)
    rows, width = len(lengths), max(lengths, default=1)
    length_B1 = torch.tensor(lengths, dtype=torch.int64)[:, None]
    place = torch.arange(width)
    real = place < length_B1
    mask = real & (place >= (length_B1 - trained).clamp_min(1))
    tokens = torch.randint(6, vocabulary, (rows, width), generator=generator)
    return TrainBatch(
        tokens_BT=torch.where(real, tokens, 0),
        segment_ids_BT=real.long(),
        loss_mask_BT=mask,
        rollout_logprobs_BT=torch.where(mask, -1.0, 0.0),
        prox_logprobs_BT=None,
        advantages_BT=torch.where(mask, torch.randn(rows, 1, generator=generator), 0.0),
        positive_BT=mask,
        chunk_index_BT=torch.where(mask, torch.arange(rows)[:, None], -1),
        chunks=rows,
        trajectory_index_B=torch.arange(rows),
        imitation_BT=torch.zeros(rows, width),
        policy_version_BT=torch.where(mask, 0, -1),
        normalizer=float(max(rows * trained, 1)),
        imitation_normalizer=1.0,
    )


def weighted_likelihood(batch: TrainBatch, logprobs_BT: torch.Tensor) -> LossOutput:
    """The loss of REINFORCE, divided by the batch's constant."""
    chosen_BT = torch.where(batch.loss_mask_BT, logprobs_BT, 0.0)
    mean = Metric(float(chosen_BT.detach().sum()), float(batch.loss_mask_BT.sum()))
    return LossOutput(-(chosen_BT * batch.advantages_BT).sum() / batch.normalizer, {"logprob": mean})


def gradients(train: TorchTrain, batch: TrainBatch) -> dict[str, torch.Tensor]:
    """Return the gradient of `weighted_likelihood` over the whole batch, by parameter."""
    weighted_likelihood(batch, train._finite(batch)[0]).loss.backward()
    found = {
        name: value.grad.clone() for name, value in train.net.named_parameters() if value.grad is not None
    }
    train._forget()
    return found
