"""What a policy network offers the generic engines, and how its weights travel between processes.

Implemented by `models.tiny` and `models.hf`, used by `samplers.generate` and `learners.torch_train`. Holds no policy itself.
Shapes: B rows, T tokens, M picked positions of a row, N picked positions of all rows, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from rock_env.errors import InvalidArgument
from trainer.protocols.engines import Weights

__all__ = [
    "Adapted",
    "Cache",
    "Net",
    "PolicyNet",
    "ScoresItself",
    "SharesPrefixes",
    "copy_tensors",
    "copy_weights",
    "host_weights",
    "showing",
]


class Cache(Protocol):
    """The key/value cache of a batch of rows being decoded."""

    def keep(self, rows: torch.Tensor) -> None:
        """Replace the rows by the old rows `rows` (int64): some dropped, some repeated."""
        ...


class Net(Protocol):
    """Whatever has parameters and a bound on its context."""

    vocabulary: int
    max_context: int
    width: int
    """Width D of the final hidden states."""

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Return the parameters; tied ones once."""
        ...


class PolicyNet(Net, Protocol):
    """A causal language model as the engines see it. Every row starts at position 0 and is one sequence."""

    def hidden_at(self, tokens_BT: torch.Tensor, at_BM: torch.Tensor) -> torch.Tensor:
        """Return the final hidden states (`BMD`) at positions `at_BM` of right-padded rows; differentiable."""
        ...

    def logits(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Return float32 logits (`NV`) of final hidden states; differentiable."""
        ...

    def prefill(
        self, tokens_BT: torch.Tensor, mask_BT: torch.Tensor | None, *, room: int
    ) -> tuple[torch.Tensor, Cache]:
        """Return the next token's logits (`BV`) after left-padded rows, and a cache with room for `room` tokens.

        `mask_BT` is True on real tokens; None says that nothing is padded.
        """
        ...

    def decode(self, tokens_B: torch.Tensor, cache: Any) -> torch.Tensor:
        """Append one token to every row of the cache (what `prefill` gave); return the next logits (`BV`)."""
        ...


@runtime_checkable
class ScoresItself(Net, Protocol):
    """A network whose distribution is not a softmax of logits over a fixed vocabulary."""

    def picked(
        self, tokens_UT: torch.Tensor, at_UM: torch.Tensor, source_N: torch.Tensor, targets_N: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log pi (`N`) of each target after place `source_N` of the flattened `at_UM`, and the final hidden states
        (`ND`) there; differentiable."""
        ...


@runtime_checkable
class SharesPrefixes(Net, Protocol):
    """A network that may compute once what the rows of a pass begin with in common."""

    shares: bool
    """Whether it does."""


@runtime_checkable
class Adapted(Net, Protocol):
    """A network of which adapters alone train: its `named_parameters` are theirs, its weights those of the whole model."""

    def merged(self) -> Weights:
        """Return the weights of the model with its adapters added in, by the names of the model without them."""
        ...

    def showing(self, weights: Weights) -> AbstractContextManager[None]:
        """Compute with weights that `merged` gave earlier; afterwards everything is as before, bit for bit."""
        ...


def host_weights(net: Net) -> Weights:
    """Return the weights that a sampler takes as float32 host arrays; on CPU views that stay valid until the next update."""
    if isinstance(net, Adapted):
        return net.merged()
    return {name: value.detach().float().cpu().numpy() for name, value in net.named_parameters()}


@contextmanager
def showing(net: Net, weights: Weights) -> Iterator[None]:
    """Compute with other weights; afterwards the parameters are as before, bit for bit. Raise as `copy_weights` does."""
    if isinstance(net, Adapted):
        with net.showing(weights):
            yield
        return
    with torch.no_grad():
        own = [(value, value.detach().clone()) for _, value in net.named_parameters()]
        copy_weights(net, weights)
        try:
            yield
        finally:
            for value, before in own:
                value.copy_(before)


@torch.no_grad()
def copy_weights(net: Net | torch.nn.Module, weights: Mapping[str, Any]) -> None:
    """Copy arrays or tensors into the parameters in place. Raise `InvalidArgument` when names or shapes differ.

    Tied parameters have one name. Nothing is copied unless everything fits. Precision and device may differ; the arrays may
    be read-only (Ray's object store).
    """
    parameters = dict(net.named_parameters())
    if parameters.keys() != weights.keys():
        odd = sorted(parameters.keys() ^ weights.keys())
        raise InvalidArgument(
            f"the weights do not belong to this model: {len(odd)} names differ, among them {odd[:3]}. "
            "Give the inference and the train engine the same model and options."
        )
    copy_tensors(parameters, weights)


@torch.no_grad()
def copy_tensors(tensors: Mapping[str, torch.Tensor], weights: Mapping[str, Any]) -> None:
    """Copy arrays or tensors into tensors of the same names in place, as `copy_weights` does.

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
