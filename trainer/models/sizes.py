"""What recipes for pretrained models are chosen by: how large a model is, and what it computes on."""

from __future__ import annotations

from contextlib import suppress

from rock_env.errors import InvalidArgument
from trainer.config import TrainConfig
from trainer.learners.memory import Shape
from trainer.models.fitting import device_bytes
from trainer.models.pretrained import model_config
from trainer.models.roles import device_of

__all__ = ["size_and_device"]

_SMALL = 1_000_000_000
"""A model with fewer is `small`."""


def size_and_device(config: TrainConfig) -> dict[str, str]:
    """Return what a recipe's variants match beside options.

    `size`: `small`, `large`, or empty for a model whose config is not here, and beside an adapter. `device`: `cpu` or
    `cuda`, by the engine's option, else by what the placement gives the learner, else by what this machine has.
    """
    size = ""
    if not config.engine_options.get("adapter"):  # which brings what a recipe would choose
        with suppress(InvalidArgument):
            parameters = Shape.of(model_config(config.model)).parameters
            size = "small" if parameters < _SMALL else "large"
    device = str(config.engine_options.get("device", "auto")).partition(":")[0]
    if device == "auto":
        device = device_of(config, "learner", "cpu" if device_bytes() is None else "cuda")
    return {"size": size, "device": device}
