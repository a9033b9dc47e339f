"""Tensors that may be spread over ranks, as whole ones and back.

Imports none of PyTorch's distributed parts until a tensor is one of theirs: a learner of one process needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rock_env.errors import InvalidArgument

__all__ = ["PLAIN", "Placement", "placed_like", "whole"]


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


class Placement:
    """Where a network's tensors are: whole in each process, or `DTensor`s. All methods are joint."""

    def shape(self, value: torch.Tensor) -> torch.Size:
        """Return the whole shape."""
        return value.shape

    def whole(self, value: torch.Tensor) -> torch.Tensor:
        """Return the whole tensor without a gradient; it may share the memory of `value`."""
        return whole(value.detach())

    def put(self, value: torch.Tensor, given: torch.Tensor) -> None:
        """Give `value` the numbers of a whole tensor, which every rank has."""
        value.detach().copy_(placed_like(value, given))

    def together(self, values: Iterable[torch.Tensor]) -> AbstractContextManager[None]:
        """Within it modules may compute with these tensors of theirs, outside of a forward pass."""
        del values
        return nullcontext()

    @contextmanager
    def showing(
        self, values: Mapping[str, torch.Tensor], weights: Mapping[str, NDArray[Any]]
    ) -> Iterator[None]:
        """Give tensors other numbers; afterwards they have their own, bit for bit.

        Raise `InvalidArgument` where the weights are not theirs.
        """
        if {name: tuple(self.shape(value)) for name, value in values.items()} != {
            name: weight.shape for name, weight in weights.items()
        }:
            raise InvalidArgument(
                "the weights do not belong to this model: names or shapes differ. Give them as `weights` returned them."
            )
        own = {name: self.whole(value).to("cpu", copy=True) for name, value in values.items()}
        try:
            for name, value in values.items():
                self.put(value, torch.from_numpy(np.array(weights[name], copy=True)))
            yield
        finally:
            for name, value in values.items():
                self.put(value, own[name])


PLAIN = Placement()
"""Of a network in one process."""
