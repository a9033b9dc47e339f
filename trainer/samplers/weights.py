"""Weights that arrive at a sampler: copied in place, or refused as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rock_env.errors import InvalidArgument

__all__ = ["copy_weights", "take_weights"]


@torch.no_grad()
def take_weights(module: torch.nn.Module, weights: Mapping[str, Any]) -> None:
    """Copy arrays or tensors, by name, into the parameters in place (tied ones have one name).

    Precision and device may differ; host arrays may be read-only. Raise `InvalidArgument` when names or shapes differ;
    nothing is copied unless everything fits.
    """
    parameters = dict(module.named_parameters())
    if parameters.keys() != weights.keys():
        odd = sorted(parameters.keys() ^ weights.keys())
        raise InvalidArgument(
            f"the weights do not belong to this model: {len(odd)} names differ, among them {odd[:3]}. "
            "Give the inference and the train engine the same model and options."
        )
    copy_weights(parameters, weights)


@torch.no_grad()
def copy_weights(tensors: Mapping[str, torch.Tensor], weights: Mapping[str, Any]) -> None:
    """Copy arrays or tensors into tensors of the same names in place, as `take_weights` does.

    Raise `InvalidArgument` when shapes differ; nothing is copied unless everything fits.
    """
    for name, value in tensors.items():
        if tuple(value.shape) != tuple(weights[name].shape):
            raise InvalidArgument(
                f"weight {name!r} has shape {tuple(weights[name].shape)}, the model expects {tuple(value.shape)}. "
                "Give the inference and the train engine the same model and options."
            )
    for name, value in tensors.items():
        given = weights[name]
        if isinstance(given, torch.Tensor):
            value.copy_(given, non_blocking=True)
        elif value.device.type == "cpu" and value.dtype == torch.float32:
            np.copyto(value.numpy(), given)
        else:
            value.copy_(torch.from_numpy(np.array(given, copy=True)))
