"""Tensors that may be spread over ranks, as whole ones and back.

Apart from `trainer.learners.sharding`, so that a learner of one process need not import PyTorch's distributed parts.
"""

from __future__ import annotations

import torch

__all__ = ["placed_like", "whole"]


def whole(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor whole, gathered from all ranks where it is spread over them (a `DTensor`)."""
    if not hasattr(value, "full_tensor"):
        return value
    gathered: torch.Tensor = value.full_tensor()
    return gathered


def placed_like(like: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor, which every rank has, on the device of `like` and spread over the ranks as `like` is."""
    mesh = getattr(like, "device_mesh", None)
    if mesh is None:
        return value.to(like.device)
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    return distribute_tensor(value.to(like.device), mesh, like.placements, src_data_rank=None)
