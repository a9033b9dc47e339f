"""Gradient checkpointing: a layer keeps its input alone and computes the rest again in the backward pass.

Used by the `hf` engine where its option `checkpointing` is set. Memory for activations then grows with layers x tokens x
width instead of some forty times that; a step computes each layer's forward pass twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from rock_env.errors import InvalidArgument

__all__ = ["layers_of", "recompute_layers"]


def layers_of(model: nn.Module) -> list[nn.Module]:
    """Return a Transformers model's layers, in order. Raise `InvalidArgument` for a model that marks none as such."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    layers: list[nn.Module] = [
        module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)
    ]
    if not layers:
        raise InvalidArgument(
            f"{type(model).__name__} does not say what its layers are (none is a GradientCheckpointingLayer of "
            "Transformers), so they can be neither recomputed nor sharded. Choose another model, or leave out "
            "checkpointing and ranks."
        )
    return layers


def recompute_layers(model: nn.Module) -> None:
    """Have every layer computed again in the backward pass, with the same kernels and therefore the same gradients.

    Transformers' own switch works in training mode only, where dropout would make log-probabilities lie. Without gradients
    a layer runs as before. Raise `InvalidArgument` as `layers_of` does.
    """
    for layer in layers_of(model):
        layer.forward = partial(_forward, layer.forward)


def _forward(forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **named)
    return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False, **named)
