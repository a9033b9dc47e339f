"""The `vllm` engine: it samples from models that `hf` trains, `--model FOLDER -s sampler=vllm`. It trains nothing.

Found by entry point `ale.engines`. vLLM is imported when a sampler is built, and needs an environment of its own
(docs/samplers.md).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveInt

from trainer.config import TrainConfig
from trainer.learners.memory import Shape
from trainer.models import hf, roles
from trainer.models.pretrained import max_context, model_config
from trainer.protocols.engines import EngineOptions, SamplerSpec
from trainer.protocols.memory import Role
from trainer.samplers.vllm.batch import VllmBatch, VllmBounds

__all__ = ["SAMPLER", "VllmOptions"]


class VllmOptions(EngineOptions):
    """How vLLM loads and samples a model."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of weights and computation; the learner's weights are rounded to it as they arrive."""
    max_context: PositiveInt | None = None
    """Most tokens of prompt and completion together; None: what the model's config says."""
    max_rows: PositiveInt = 64
    """Most requests sampled at once; others wait."""
    cache_bytes: PositiveInt = 4 * 2**30
    """Memory for keys and values: of the requests being sampled, and of earlier turns, which are found again."""

    @property
    def half(self) -> bool:
        """Return whether the engine computes in less than float32."""
        return self.dtype == "bfloat16"


def _inference(model: str, options: VllmOptions, seed: int) -> VllmBatch:
    del seed  # a request carries its own
    template = hf.chat_template(model, hf.HFOptions(max_context=options.max_context))
    bounds = VllmBounds(template.max_context, options.max_rows, options.cache_bytes)
    return VllmBatch(model, dtype=options.dtype, end_id=template.end_id, bounds=bounds, text=template.decode)


def _memory(model: str, options: VllmOptions, config: TrainConfig) -> list[Role]:
    about = model_config(model)
    device = roles.device_of(config, "sampler", "cuda" if torch.cuda.is_available() else "cpu")
    return [
        roles.sampler(
            Shape.of(about),
            device,
            processes=config.rollout.engines,
            half=options.half,
            rows=min(options.max_rows, roles.at_once(config)),
            max_context=max_context(model, options.max_context, about),
            cache_bytes=options.cache_bytes,
            remembered_bytes=0,
            keeps_weights=device == "cpu",
        )
    ]


SAMPLER = SamplerSpec(
    name="vllm",
    summary="samples with vLLM from models that hf trains; it trains nothing",
    options=VllmOptions,
    inference=_inference,
    stops=True,
    steps=True,
    memory=_memory,
    learners=("hf",),
)
