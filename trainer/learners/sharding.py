"""One model over several ranks by PyTorch's FSDP2: each holds a share of every weight, gradient and moment.

A rank gathers a layer's weights while it computes that layer, and lets go of them. Every rank must therefore run as many
forward and backward passes as the others, also one that has nothing to train: `ShardedNet.idle`.
Shapes: U rows, T tokens, M picked positions of a row, N picked tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard

from rock_env.errors import InvalidArgument
from trainer.learners.head import token_logprobs
from trainer.learners.recompute import layers_of
from trainer.learners.spread import placed_like, whole

__all__ = ["ShardedNet"]


class _Whole(Protocol):
    """The network to shard: a `PolicyNet` over a model of Transformers."""

    model: Any
    vocabulary: int
    width: int
    max_context: int

    def hidden_at(self, tokens_BT: torch.Tensor, at_BM: torch.Tensor) -> torch.Tensor: ...

    def logits(self, hidden_ND: torch.Tensor) -> torch.Tensor: ...

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]: ...


class _Scores(nn.Module):
    """A whole forward pass, head included, as one module: FSDP2 gathers weights around the call of a module."""

    def __init__(self, net: _Whole) -> None:
        super().__init__()
        self.model = net.model
        self._net = net

    def forward(
        self, tokens_UT: torch.Tensor, at_UM: torch.Tensor, source_N: torch.Tensor, targets_N: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # index_select, because its backward pass adds duplicates in a fixed order.
        hidden_ND = self._net.hidden_at(tokens_UT, at_UM).flatten(0, 1).index_select(0, source_N)
        logprobs_N = token_logprobs(self._net.logits, self._net.vocabulary, hidden_ND, targets_N)
        return logprobs_N.clone(), hidden_ND  # FSDP2 hangs its hook on the result, which must be no view


class ShardedNet:
    """A network whose weights are spread over the ranks of a device mesh. All methods but `named_parameters` are joint."""

    def __init__(self, net: _Whole, mesh: DeviceMesh) -> None:
        """Shard a network, which every rank of the mesh holds with the same weights. It must not be used otherwise."""
        self.vocabulary, self.width, self.max_context = net.vocabulary, net.width, net.max_context
        self._scores = _Scores(net)
        self._device = mesh.device_type
        # Weights are let go of after every forward pass, the root's too: its parameters are then always the shares.
        for layer in layers_of(net.model):
            fully_shard(layer, mesh=mesh, reshard_after_forward=True)
        fully_shard(self._scores, mesh=mesh, reshard_after_forward=True)
        self._parameters = dict(net.named_parameters())

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Return this rank's share of every parameter (`DTensor`), by the names of the whole model."""
        return iter(self._parameters.items())

    def picked(
        self, tokens_UT: torch.Tensor, at_UM: torch.Tensor, source_N: torch.Tensor, targets_N: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log pi (`N`) of each target after place `source_N` of the flattened `at_UM`, and the states (`ND`)."""
        scored: tuple[torch.Tensor, torch.Tensor] = self._scores(tokens_UT, at_UM, source_N, targets_N)
        return scored

    def idle(self) -> torch.Tensor:
        """Take part in a pass with nothing to train: return 0, whose gradient is 0 for every parameter."""
        nothing = torch.zeros(1, 1, dtype=torch.int64, device=self._device)
        return self.picked(nothing, nothing, nothing[0], nothing[0])[0].sum() * 0.0

    def merged(self) -> dict[str, NDArray[Any]]:
        """Return the whole weights as float32 host arrays, at every rank."""
        return {name: whole(value.detach()).float().cpu().numpy() for name, value in self._parameters.items()}

    @contextmanager
    def showing(self, weights: dict[str, NDArray[Any]]) -> Iterator[None]:
        """Compute with other whole weights; afterwards all is as before, bit for bit. Raise `InvalidArgument`."""
        if {n: tuple(v.shape) for n, v in self._parameters.items()} != {
            n: w.shape for n, w in weights.items()
        }:
            raise InvalidArgument(
                "the weights do not belong to this model: names or shapes differ. Give them as `weights` returned them."
            )
        own = {name: value.detach().clone() for name, value in self._parameters.items()}
        with torch.no_grad():
            try:
                for name, value in self._parameters.items():
                    value.copy_(placed_like(value, torch.from_numpy(np.array(weights[name], copy=True))))
                yield
            finally:
                for name, value in self._parameters.items():
                    value.copy_(own[name])
