"""Gradient checkpointing: a layer keeps its input alone and computes the rest again in the backward pass.

Used by the `hf` engine where its option `checkpointing` is set. Memory for activations then grows with layers x tokens x
width instead of some forty times that; a step computes each layer's forward pass twice.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from rock_env.errors import InvalidArgument

__all__ = ["GIVEN_BACK", "give_blocks_back", "layers_of", "recompute_layers"]

GIVEN_BACK = 1 << 22
"""Bytes of a block from which on the memory goes back at once where layers are computed again."""
_MMAP_THRESHOLD = -3  # of malloc.h
_mallopt = getattr(ctypes.CDLL(None), "mallopt", None)


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


def give_blocks_back() -> None:
    """Let malloc map blocks of `GIVEN_BACK` bytes and more apart, from now on and in this whole process.

    glibc learns from the first large block that is freed to keep all of less than 32 MiB. Between the inputs of layers,
    which stay, nearly all that layers computed then stays as well: 6 GB of 10.9 for 4,096 tokens and 28 layers of width
    1,024. Does nothing where the C library is another one.
    """
    if _mallopt is not None:
        _mallopt(_MMAP_THRESHOLD, GIVEN_BACK)


def _forward(forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*inputs, **named)
    return checkpoint(forward, *inputs, use_reentrant=False, preserve_rng_state=False, **named)
